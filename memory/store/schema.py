"""The tables as SQLAlchemy Core sees them. ``migrations/`` creates them; a test compares the two.

JSON lives in text columns, not in a JSON type, so that what comes back is what was written, byte for
byte, on both databases. A frozen head is a ``head_frozen`` fact and nothing else: ``views.heads`` reads
heads from the log, so there is no second record that could differ from it.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, ForeignKeyConstraint, MetaData, Table, Text

METADATA = MetaData()

SCHEMA_VERSION = Table(
    "schema_version",
    METADATA,
    Column("version", BigInteger, primary_key=True, autoincrement=False),
)

SESSIONS = Table(
    "sessions",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("alias", Text),
    Column("model", Text, nullable=False),
    Column("pack_digest", Text, nullable=False),
    Column("renderer", BigInteger, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("closed_ms", BigInteger),
    Column("deleted_ms", BigInteger),
    Column("retention_ms", BigInteger),
)

FACTS = Table(
    "facts",
    METADATA,
    Column("session", Text, ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("data", Text, nullable=False),
)

SNAPSHOTS = Table(
    "snapshots",
    METADATA,
    Column("session", Text, ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("data", Text, nullable=False),
)

FRAMES = Table(
    "frames",
    METADATA,
    Column("tenant", Text, primary_key=True),
    Column("uuid", Text, primary_key=True),
    Column("file", Text, nullable=False, unique=True),
    Column("size", BigInteger, nullable=False),
    Column("expires_ms", BigInteger),
)

FRAME_REFS = Table(
    "frame_refs",
    METADATA,
    Column("session", Text, ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("uuid", Text, primary_key=True),
    ForeignKeyConstraint(["tenant", "uuid"], ["frames.tenant", "frames.uuid"], ondelete="CASCADE"),
)

PACKS = Table(
    "packs",
    METADATA,
    Column("digest", Text, primary_key=True),
    Column("source", Text, nullable=False),
)

PACK_REFS = Table(
    "pack_refs",
    METADATA,
    Column("session", Text, ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True),
    Column("digest", Text, ForeignKey("packs.digest"), primary_key=True),
)

TENANT_KEYS = Table(
    "tenant_keys",
    METADATA,
    Column("tenant", Text, primary_key=True),
    Column("frame_key", Text, nullable=False),
    Column("salt_key", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
)

PROCESSES = Table(
    "processes",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("address", Text, nullable=False),
    Column("until_ms", BigInteger, nullable=False),
)

LEASES = Table(
    "leases",
    METADATA,
    Column("session", Text, ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True),
    Column("owner", Text),
    Column("fence", BigInteger, nullable=False),
)
