-- Combos as a whole: targets that are patterns or other combos, with names of their own; what a
-- model can answer and costs; the plans of connections. Everything added has a default, so that
-- processes of the version before go on writing what they know; of targets they do not know they
-- see nothing. SQLite changes no column in place, so the table of targets is made anew.

-- +goose Up
ALTER TABLE connections ADD COLUMN plan TEXT;

ALTER TABLE models ADD COLUMN max_output  INTEGER NOT NULL DEFAULT 0 CHECK (max_output >= 0);
ALTER TABLE models ADD COLUMN price_known NUMERIC NOT NULL DEFAULT FALSE;
UPDATE models SET price_known = TRUE WHERE price_input > 0 OR price_output > 0;

ALTER TABLE combos ADD COLUMN description       TEXT    NOT NULL DEFAULT '';
ALTER TABLE combos ADD COLUMN allowed_providers TEXT    NOT NULL DEFAULT '[]';
ALTER TABLE combos ADD COLUMN context_length    INTEGER NOT NULL DEFAULT 0 CHECK (context_length >= 0);
ALTER TABLE combos ADD COLUMN disabled          NUMERIC NOT NULL DEFAULT FALSE;

-- Combos of one change may point to each other, whichever is written first.
CREATE TABLE combo_targets_new (
    combo_name          TEXT    NOT NULL REFERENCES combos (name) ON DELETE CASCADE,
    position            INTEGER NOT NULL CHECK (position >= 0),
    provider_id         TEXT    REFERENCES providers (id),
    model_id            TEXT,
    connection_id       TEXT,
    weight              DOUBLE PRECISION NOT NULL CHECK (weight >= 0),
    step_id             TEXT    NOT NULL DEFAULT '',
    pattern             TEXT,
    allowed_connections TEXT    NOT NULL DEFAULT '[]',
    label               TEXT    NOT NULL DEFAULT '',
    tags                TEXT    NOT NULL DEFAULT '[]',
    prompt              TEXT    NOT NULL DEFAULT '',
    only_on_quota       NUMERIC NOT NULL DEFAULT FALSE,
    inner_combo         TEXT    REFERENCES combos (name) DEFERRABLE INITIALLY DEFERRED,
    PRIMARY KEY (combo_name, position),
    FOREIGN KEY (provider_id, model_id) REFERENCES models (provider_id, id),
    FOREIGN KEY (provider_id, connection_id) REFERENCES connections (provider_id, id),
    CONSTRAINT combo_targets_one_kind CHECK (
        inner_combo IS NULL AND provider_id IS NOT NULL AND (model_id IS NULL) <> (pattern IS NULL)
        OR inner_combo IS NOT NULL AND provider_id IS NULL AND model_id IS NULL AND pattern IS NULL)
);
INSERT INTO combo_targets_new (combo_name, position, provider_id, model_id, connection_id, weight, step_id)
    SELECT combo_name, position, provider_id, model_id, connection_id, weight,
           provider_id || '/' || model_id || COALESCE('@' || connection_id, '')
    FROM combo_targets;
DROP TABLE combo_targets;
ALTER TABLE combo_targets_new RENAME TO combo_targets;
CREATE UNIQUE INDEX combo_targets_once ON combo_targets (combo_name, step_id) WHERE step_id <> '';
CREATE INDEX combo_targets_by_model ON combo_targets (provider_id, model_id);
CREATE INDEX combo_targets_by_connection ON combo_targets (provider_id, connection_id);
CREATE INDEX combo_targets_by_inner ON combo_targets (inner_combo) WHERE inner_combo IS NOT NULL;

-- +goose Down
CREATE TABLE combo_targets_old (
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
CREATE UNIQUE INDEX combo_targets_once_old ON combo_targets_old (combo_name, provider_id, model_id, COALESCE(connection_id, ''));
INSERT OR IGNORE INTO combo_targets_old
    SELECT combo_name, position, provider_id, model_id, connection_id, CAST(ROUND(weight) AS INTEGER)
    FROM combo_targets WHERE model_id IS NOT NULL ORDER BY combo_name, position;
DROP TABLE combo_targets;
DROP INDEX combo_targets_once_old;
ALTER TABLE combo_targets_old RENAME TO combo_targets;
CREATE UNIQUE INDEX combo_targets_once ON combo_targets (combo_name, provider_id, model_id, COALESCE(connection_id, ''));
CREATE INDEX combo_targets_by_model ON combo_targets (provider_id, model_id);
CREATE INDEX combo_targets_by_connection ON combo_targets (provider_id, connection_id);

ALTER TABLE combos DROP COLUMN disabled;
ALTER TABLE combos DROP COLUMN context_length;
ALTER TABLE combos DROP COLUMN allowed_providers;
ALTER TABLE combos DROP COLUMN description;
ALTER TABLE models DROP COLUMN price_known;
ALTER TABLE models DROP COLUMN max_output;
ALTER TABLE connections DROP COLUMN plan;
