-- Published health: one row per entity, replaced only by a newer (era, version). There are no
-- foreign keys on purpose: the row of a removed connection stays as a tombstone that outranks
-- a workflow which outlived it.

-- +goose Up
CREATE TABLE connection_states (
    connection_id   TEXT   NOT NULL PRIMARY KEY CHECK (connection_id <> ''),
    provider_id     TEXT   NOT NULL,
    era             INTEGER NOT NULL CHECK (era >= 0),
    version         INTEGER NOT NULL,
    phase           TEXT   NOT NULL CHECK (phase IN ('ready', 'cooling', 'banned', 'expired', 'credits_exhausted')),
    reason          TEXT   NOT NULL,
    status          INTEGER NOT NULL,
    level           INTEGER NOT NULL CHECK (level >= 0),
    until_at        INTEGER NOT NULL,
    applied_through INTEGER NOT NULL,
    state           TEXT   NOT NULL,
    updated_at      INTEGER NOT NULL
);
CREATE INDEX connection_states_by_update ON connection_states (updated_at);

CREATE TABLE domain_circuit_breakers (
    name              TEXT   NOT NULL PRIMARY KEY CHECK (name <> ''),
    era               INTEGER NOT NULL CHECK (era >= 0),
    version           INTEGER NOT NULL,
    state             TEXT   NOT NULL CHECK (state IN ('CLOSED', 'OPEN')),
    failure_count     INTEGER NOT NULL CHECK (failure_count >= 0),
    last_failure_time INTEGER NOT NULL,
    cycle             INTEGER NOT NULL CHECK (cycle >= 0),
    until_at          INTEGER NOT NULL,
    applied_through   INTEGER NOT NULL,
    opening           TEXT   NOT NULL,
    probe_owner       TEXT   NOT NULL,
    probe_until       INTEGER NOT NULL,
    updated_at        INTEGER NOT NULL
);
CREATE INDEX domain_circuit_breakers_by_update ON domain_circuit_breakers (updated_at);

-- +goose Down
DROP TABLE domain_circuit_breakers;
DROP TABLE connection_states;
