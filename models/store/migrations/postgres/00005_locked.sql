-- A connection of which only models are out has a phase of its own.

-- +goose Up
ALTER TABLE connection_states DROP CONSTRAINT connection_states_phase_check;
ALTER TABLE connection_states ADD CONSTRAINT connection_states_phase_check
    CHECK (phase IN ('ready', 'cooling', 'locked', 'banned', 'expired', 'credits_exhausted'));

-- +goose Down
UPDATE connection_states SET phase = 'ready' WHERE phase = 'locked';
ALTER TABLE connection_states DROP CONSTRAINT connection_states_phase_check;
ALTER TABLE connection_states ADD CONSTRAINT connection_states_phase_check
    CHECK (phase IN ('ready', 'cooling', 'banned', 'expired', 'credits_exhausted'));
