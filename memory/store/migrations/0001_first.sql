-- Portable between SQLite and PostgreSQL. Times are Unix milliseconds; JSON is text, byte for byte.

CREATE TABLE sessions (
    id TEXT NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL,
    alias TEXT,
    model TEXT NOT NULL,
    pack_digest TEXT NOT NULL,
    renderer BIGINT NOT NULL,
    created_ms BIGINT NOT NULL,
    closed_ms BIGINT,
    deleted_ms BIGINT,
    retention_ms BIGINT,
    resume_token_hash TEXT,
    resume_until_ms BIGINT,
    attachment_generation BIGINT NOT NULL,
    event_seq_ceiling BIGINT NOT NULL
);

CREATE INDEX sessions_by_age ON sessions (tenant, created_ms, id);

-- One live session for each alias of a tenant.
CREATE UNIQUE INDEX sessions_live_alias ON sessions (tenant, alias)
    WHERE closed_ms IS NULL AND deleted_ms IS NULL AND alias IS NOT NULL;

-- The log. The primary key is what refuses a second writer.
CREATE TABLE facts (
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    seq BIGINT NOT NULL,
    at_ms BIGINT NOT NULL,
    kind TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (session, seq)
);

-- Folded state, a cache of the log up to seq.
CREATE TABLE snapshots (
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    seq BIGINT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (session, name)
);

-- Bytes are in the file of that name under the data folder.
CREATE TABLE frames (
    tenant TEXT NOT NULL,
    uuid TEXT NOT NULL,
    file TEXT NOT NULL,
    size BIGINT NOT NULL,
    expires_ms BIGINT,
    PRIMARY KEY (tenant, uuid)
);

CREATE UNIQUE INDEX frames_by_file ON frames (file);
CREATE INDEX frames_by_expiry ON frames (expires_ms);

CREATE TABLE frame_refs (
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    tenant TEXT NOT NULL,
    uuid TEXT NOT NULL,
    PRIMARY KEY (session, uuid),
    FOREIGN KEY (tenant, uuid) REFERENCES frames (tenant, uuid) ON DELETE CASCADE
);

CREATE INDEX frame_refs_by_frame ON frame_refs (tenant, uuid);

CREATE TABLE tenant_keys (
    tenant TEXT NOT NULL PRIMARY KEY,
    frame_key TEXT NOT NULL,
    salt_key TEXT NOT NULL,
    created_ms BIGINT NOT NULL
);
