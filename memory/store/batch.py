"""A batch of frames and facts as one SQLite statement, which is a transaction by itself.

SQLite's driver lets go of the interpreter at every statement and every row, and then has to wait until the
event loop lets go of it: a transaction of a few rows would take milliseconds of a busy process. The view
below is written to instead of read; its trigger spreads a batch over the tables, inside SQLite.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from sqlalchemy import Connection

SETUP = (
    "CREATE TEMP VIEW vigil_batch (frames, refs, facts) AS SELECT NULL, NULL, NULL",
    """
    CREATE TEMP TRIGGER vigil_batch_written INSTEAD OF INSERT ON vigil_batch BEGIN
        INSERT INTO frames (tenant, uuid, file, size, expires_ms)
            SELECT value ->> 'tenant', value ->> 'uuid', value ->> 'file', value ->> 'size',
                value ->> 'expires_ms'
            FROM json_each(NEW.frames) WHERE true
            ON CONFLICT (tenant, uuid) DO UPDATE SET expires_ms = CASE
                WHEN excluded.expires_ms IS NULL OR excluded.expires_ms > expires_ms THEN excluded.expires_ms
                ELSE expires_ms END;
        INSERT INTO frame_refs (session, tenant, uuid)
            SELECT value ->> 'session', value ->> 'tenant', value ->> 'uuid'
            FROM json_each(NEW.refs) WHERE true
            ON CONFLICT DO NOTHING;
        INSERT INTO facts (session, seq, at_ms, kind, data)
            SELECT value ->> 'session', value ->> 'seq', value ->> 'at_ms', value ->> 'kind',
                value ->> 'data'
            FROM json_each(NEW.facts);
    END
    """,
)
"""For each connection. Rows are JSON objects by the names of the columns."""

_WRITE = "INSERT INTO vigil_batch VALUES (?, ?, ?)"

Rows = Sequence[dict[str, Any]]


def write_batch(connection: Connection, frames: Rows, refs: Rows, facts: Rows) -> None:
    """All of it or, raising, nothing. A frame that is there lives as long as its latest use asks for."""
    driver = connection.connection.driver_connection
    assert driver is not None
    driver.execute(_WRITE, tuple(orjson.dumps(rows).decode() for rows in (frames, refs, facts)))
