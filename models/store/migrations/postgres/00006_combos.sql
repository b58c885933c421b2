-- Combos as a whole: targets that are patterns or other combos, with names of their own; what a
-- model can answer and costs; the plans of connections. Everything added has a default, so that
-- processes of the version before go on writing what they know; of targets they do not know they
-- see nothing.

-- +goose Up
ALTER TABLE connections ADD COLUMN plan TEXT;

ALTER TABLE models
    ADD COLUMN max_output  BIGINT  NOT NULL DEFAULT 0 CHECK (max_output >= 0),
    ADD COLUMN price_known BOOLEAN NOT NULL DEFAULT FALSE;
UPDATE models SET price_known = TRUE WHERE price_input > 0 OR price_output > 0;

ALTER TABLE combos
    ADD COLUMN description       TEXT    NOT NULL DEFAULT '',
    ADD COLUMN allowed_providers TEXT    NOT NULL DEFAULT '[]',
    ADD COLUMN context_length    BIGINT  NOT NULL DEFAULT 0 CHECK (context_length >= 0),
    ADD COLUMN disabled          BOOLEAN NOT NULL DEFAULT FALSE;

DROP INDEX combo_targets_once;
ALTER TABLE combo_targets
    ALTER COLUMN provider_id DROP NOT NULL,
    ALTER COLUMN model_id DROP NOT NULL,
    ALTER COLUMN weight TYPE DOUBLE PRECISION,
    ADD COLUMN step_id             TEXT    NOT NULL DEFAULT '',
    ADD COLUMN pattern             TEXT,
    ADD COLUMN allowed_connections TEXT    NOT NULL DEFAULT '[]',
    ADD COLUMN label               TEXT    NOT NULL DEFAULT '',
    ADD COLUMN tags                TEXT    NOT NULL DEFAULT '[]',
    ADD COLUMN prompt              TEXT    NOT NULL DEFAULT '',
    ADD COLUMN only_on_quota       BOOLEAN NOT NULL DEFAULT FALSE;
UPDATE combo_targets SET step_id = provider_id || '/' || model_id || COALESCE('@' || connection_id, '');

-- Combos of one change may point to each other, whichever is written first.
ALTER TABLE combo_targets
    ADD COLUMN inner_combo TEXT REFERENCES combos (name) DEFERRABLE INITIALLY DEFERRED,
    ADD FOREIGN KEY (provider_id) REFERENCES providers (id),
    ADD CONSTRAINT combo_targets_one_kind CHECK (
        inner_combo IS NULL AND provider_id IS NOT NULL AND (model_id IS NULL) <> (pattern IS NULL)
        OR inner_combo IS NOT NULL AND provider_id IS NULL AND model_id IS NULL AND pattern IS NULL);
CREATE UNIQUE INDEX combo_targets_once ON combo_targets (combo_name, step_id) WHERE step_id <> '';
CREATE INDEX combo_targets_by_inner ON combo_targets (inner_combo) WHERE inner_combo IS NOT NULL;

-- +goose Down
DELETE FROM combo_targets WHERE model_id IS NULL;
DELETE FROM combo_targets t USING combo_targets first
    WHERE first.combo_name = t.combo_name AND first.provider_id = t.provider_id AND first.model_id = t.model_id
      AND COALESCE(first.connection_id, '') = COALESCE(t.connection_id, '') AND first.position < t.position;
DROP INDEX combo_targets_by_inner;
DROP INDEX combo_targets_once;
ALTER TABLE combo_targets
    DROP CONSTRAINT combo_targets_one_kind,
    DROP CONSTRAINT combo_targets_provider_id_fkey,
    DROP COLUMN inner_combo,
    DROP COLUMN only_on_quota,
    DROP COLUMN prompt,
    DROP COLUMN tags,
    DROP COLUMN label,
    DROP COLUMN allowed_connections,
    DROP COLUMN pattern,
    DROP COLUMN step_id,
    ALTER COLUMN weight TYPE BIGINT USING ROUND(weight)::BIGINT,
    ALTER COLUMN model_id SET NOT NULL,
    ALTER COLUMN provider_id SET NOT NULL;
CREATE UNIQUE INDEX combo_targets_once ON combo_targets (combo_name, provider_id, model_id, COALESCE(connection_id, ''));

ALTER TABLE combos DROP COLUMN disabled, DROP COLUMN context_length, DROP COLUMN allowed_providers, DROP COLUMN description;
ALTER TABLE models DROP COLUMN price_known, DROP COLUMN max_output;
ALTER TABLE connections DROP COLUMN plan;
