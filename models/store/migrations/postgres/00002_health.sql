-- Published health: one row per entity, replaced only by a newer (era, version). There are no
-- foreign keys on purpose: the row of a removed connection stays as a tombstone that outranks
-- a workflow which outlived it.

-- +goose Up
CREATE TABLE connection_states (
    connection_id   TEXT   NOT NULL PRIMARY KEY CHECK (connection_id <> ''),
    provider_id     TEXT   NOT NULL,
    era             BIGINT NOT NULL CHECK (era >= 0),
    version         BIGINT NOT NULL,
    phase           TEXT   NOT NULL CHECK (phase IN ('ready', 'cooling', 'banned', 'expired', 'credits_exhausted')),
    reason          TEXT   NOT NULL,
    status          BIGINT NOT NULL,
    level           BIGINT NOT NULL CHECK (level >= 0),
    until_at        BIGINT NOT NULL,
    applied_through BIGINT NOT NULL,
    state           TEXT   NOT NULL,
    updated_at      BIGINT NOT NULL
);
CREATE INDEX connection_states_by_update ON connection_states (updated_at);

CREATE TABLE domain_circuit_breakers (
    name              TEXT   NOT NULL PRIMARY KEY CHECK (name <> ''),
    era               BIGINT NOT NULL CHECK (era >= 0),
    version           BIGINT NOT NULL,
    state             TEXT   NOT NULL CHECK (state IN ('CLOSED', 'OPEN')),
    failure_count     BIGINT NOT NULL CHECK (failure_count >= 0),
    last_failure_time BIGINT NOT NULL,
    cycle             BIGINT NOT NULL CHECK (cycle >= 0),
    until_at          BIGINT NOT NULL,
    applied_through   BIGINT NOT NULL,
    opening           TEXT   NOT NULL,
    probe_owner       TEXT   NOT NULL,
    probe_until       BIGINT NOT NULL,
    updated_at        BIGINT NOT NULL
);
CREATE INDEX domain_circuit_breakers_by_update ON domain_circuit_breakers (updated_at);

-- +goose Down
DROP TABLE domain_circuit_breakers;
DROP TABLE connection_states;
