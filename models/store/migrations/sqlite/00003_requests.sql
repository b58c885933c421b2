-- The request log: one row per finished request. No foreign keys: a row outlives the key and
-- the connection it names. The id is ours; what the client calls its request need not be unique.

-- +goose Up
CREATE TABLE requests (
    id                TEXT    NOT NULL PRIMARY KEY CHECK (id <> ''),
    client_request_id TEXT    NOT NULL,
    key_id            TEXT    NOT NULL,
    asked             TEXT    NOT NULL,
    served            TEXT    NOT NULL,
    connection_id     TEXT    NOT NULL,
    attempts          INTEGER NOT NULL CHECK (attempts >= 0),
    status            INTEGER NOT NULL,
    reason            TEXT    NOT NULL,
    stream            NUMERIC NOT NULL,
    input_tokens      INTEGER NOT NULL,
    output_tokens     INTEGER NOT NULL,
    started_at        INTEGER NOT NULL,
    first_token_ms    INTEGER NOT NULL,
    total_ms          INTEGER NOT NULL
);
CREATE INDEX requests_by_start ON requests (started_at);
CREATE INDEX requests_by_client_id ON requests (client_request_id) WHERE client_request_id <> '';

-- +goose Down
DROP TABLE requests;
