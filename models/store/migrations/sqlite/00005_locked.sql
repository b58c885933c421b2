-- A connection of which only models are out has a phase of its own. SQLite changes no constraint
-- in place, so the table is made anew.

-- +goose Up
CREATE TABLE connection_states_new (
    connection_id   TEXT    NOT NULL PRIMARY KEY CHECK (connection_id <> ''),
    provider_id     TEXT    NOT NULL,
    era             INTEGER NOT NULL CHECK (era >= 0),
    version         INTEGER NOT NULL,
    phase           TEXT    NOT NULL CHECK (phase IN ('ready', 'cooling', 'locked', 'banned', 'expired', 'credits_exhausted')),
    reason          TEXT    NOT NULL,
    status          INTEGER NOT NULL,
    level           INTEGER NOT NULL CHECK (level >= 0),
    until_at        INTEGER NOT NULL,
    applied_through INTEGER NOT NULL,
    state           TEXT    NOT NULL,
    updated_at      INTEGER NOT NULL
);
INSERT INTO connection_states_new SELECT * FROM connection_states;
DROP TABLE connection_states;
ALTER TABLE connection_states_new RENAME TO connection_states;
CREATE INDEX connection_states_by_update ON connection_states (updated_at);

-- +goose Down
UPDATE connection_states SET phase = 'ready' WHERE phase = 'locked';
CREATE TABLE connection_states_new (
    connection_id   TEXT    NOT NULL PRIMARY KEY CHECK (connection_id <> ''),
    provider_id     TEXT    NOT NULL,
    era             INTEGER NOT NULL CHECK (era >= 0),
    version         INTEGER NOT NULL,
    phase           TEXT    NOT NULL CHECK (phase IN ('ready', 'cooling', 'banned', 'expired', 'credits_exhausted')),
    reason          TEXT    NOT NULL,
    status          INTEGER NOT NULL,
    level           INTEGER NOT NULL CHECK (level >= 0),
    until_at        INTEGER NOT NULL,
    applied_through INTEGER NOT NULL,
    state           TEXT    NOT NULL,
    updated_at      INTEGER NOT NULL
);
INSERT INTO connection_states_new SELECT * FROM connection_states;
DROP TABLE connection_states;
ALTER TABLE connection_states_new RENAME TO connection_states;
CREATE INDEX connection_states_by_update ON connection_states (updated_at);
