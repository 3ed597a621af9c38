-- Prompt packs verbatim, once each: a live window finishes on the pack it started with, also when its
-- files were edited meanwhile.
CREATE TABLE packs (
    digest TEXT NOT NULL PRIMARY KEY,
    source TEXT NOT NULL
);

CREATE TABLE pack_refs (
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    digest TEXT NOT NULL REFERENCES packs (digest),
    PRIMARY KEY (session, digest)
);

CREATE INDEX pack_refs_by_pack ON pack_refs (digest);
