-- Which of several processes owns a session. A process lives until until_ms of the database's clock and moves
-- that forward by its heartbeat; a fence counts the owners of a session, so that a former one is told apart.
CREATE TABLE processes (
    id TEXT NOT NULL PRIMARY KEY,
    address TEXT NOT NULL,
    until_ms BIGINT NOT NULL
);

CREATE TABLE leases (
    session TEXT NOT NULL PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
    owner TEXT,
    fence BIGINT NOT NULL
);

CREATE INDEX leases_by_owner ON leases (owner);
