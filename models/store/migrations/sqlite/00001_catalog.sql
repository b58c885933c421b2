-- The catalog: what operators configure. Times are epoch milliseconds, UTC.

-- +goose Up
CREATE TABLE catalog_meta (
    id        INTEGER PRIMARY KEY CHECK (id = 1),
    revision  INTEGER NOT NULL CHECK (revision >= 0),
    seal_test TEXT   NOT NULL,
    hash_test TEXT   NOT NULL
);
INSERT INTO catalog_meta (id, revision, seal_test, hash_test) VALUES (1, 0, '', '');

CREATE TABLE providers (
    id         TEXT   NOT NULL PRIMARY KEY CHECK (id <> ''),
    class      TEXT   NOT NULL CHECK (class IN ('oauth', 'api_key', 'local')),
    dialect    TEXT   NOT NULL,
    base_url   TEXT   NOT NULL,
    timeouts   TEXT   NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);

CREATE TABLE connections (
    id             TEXT   NOT NULL PRIMARY KEY CHECK (id <> ''),
    provider_id    TEXT    NOT NULL REFERENCES providers (id),
    priority       INTEGER  NOT NULL CHECK (priority >= 0),
    max_concurrent INTEGER  NOT NULL CHECK (max_concurrent >= 0),
    disabled       NUMERIC NOT NULL,
    credential     TEXT    NOT NULL CHECK (credential = '' OR credential LIKE 'v_:%'),
    created_at     INTEGER  NOT NULL,
    updated_at     INTEGER  NOT NULL,
    UNIQUE (provider_id, id)
);
CREATE INDEX connections_by_priority ON connections (provider_id, priority);

CREATE TABLE models (
    provider_id    TEXT             NOT NULL REFERENCES providers (id),
    id             TEXT             NOT NULL CHECK (id <> ''),
    context_window INTEGER           NOT NULL CHECK (context_window >= 0),
    price_input    DOUBLE PRECISION NOT NULL CHECK (price_input >= 0),
    price_output   DOUBLE PRECISION NOT NULL CHECK (price_output >= 0),
    capabilities   TEXT             NOT NULL,
    created_at     INTEGER           NOT NULL,
    updated_at     INTEGER           NOT NULL,
    PRIMARY KEY (provider_id, id)
);

CREATE TABLE combos (
    name       TEXT   NOT NULL PRIMARY KEY CHECK (name <> ''),
    strategy   TEXT   NOT NULL,
    config     TEXT   NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);

-- The second foreign key also says that a pinned connection belongs to the model's provider.
CREATE TABLE combo_targets (
    combo_name    TEXT   NOT NULL REFERENCES combos (name) ON DELETE CASCADE,
    position      INTEGER NOT NULL CHECK (position >= 0),
    provider_id   TEXT   NOT NULL,
    model_id      TEXT   NOT NULL,
    connection_id TEXT,
    weight        INTEGER NOT NULL CHECK (weight >= 0),
    PRIMARY KEY (combo_name, position),
    FOREIGN KEY (provider_id, model_id) REFERENCES models (provider_id, id),
    FOREIGN KEY (provider_id, connection_id) REFERENCES connections (provider_id, id)
);
CREATE UNIQUE INDEX combo_targets_once ON combo_targets (combo_name, provider_id, model_id, COALESCE(connection_id, ''));
CREATE INDEX combo_targets_by_model ON combo_targets (provider_id, model_id);
CREATE INDEX combo_targets_by_connection ON combo_targets (provider_id, connection_id);

CREATE TABLE api_keys (
    id                  TEXT   NOT NULL PRIMARY KEY CHECK (id <> ''),
    name                TEXT   NOT NULL UNIQUE CHECK (name <> ''),
    hash                TEXT   NOT NULL UNIQUE CHECK (length(hash) = 64),
    scopes              TEXT   NOT NULL,
    allowed_connections TEXT,
    allowed_models      TEXT,
    expires_at          INTEGER,
    created_at          INTEGER NOT NULL,
    updated_at          INTEGER NOT NULL
);

CREATE TABLE settings (
    name       TEXT   NOT NULL PRIMARY KEY CHECK (name <> ''),
    value      TEXT   NOT NULL,
    updated_at INTEGER NOT NULL
);

CREATE TABLE audit_log (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    at     INTEGER NOT NULL,
    actor  TEXT   NOT NULL,
    action TEXT   NOT NULL,
    kind   TEXT   NOT NULL,
    entity TEXT   NOT NULL,
    detail TEXT   NOT NULL
);
CREATE INDEX audit_log_by_time ON audit_log (at);

-- +goose Down
DROP TABLE audit_log;
DROP TABLE settings;
DROP TABLE api_keys;
DROP TABLE combo_targets;
DROP TABLE combos;
DROP TABLE models;
DROP TABLE connections;
DROP TABLE providers;
DROP TABLE catalog_meta;
