-- Who may resume, and which numbers were given out, is in the log with all else.
ALTER TABLE sessions DROP COLUMN resume_token_hash;
ALTER TABLE sessions DROP COLUMN resume_until_ms;
ALTER TABLE sessions DROP COLUMN attachment_generation;
ALTER TABLE sessions DROP COLUMN event_seq_ceiling;
