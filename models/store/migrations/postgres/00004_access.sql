-- How providers are reached and authenticated to: kinds and quotas, OAuth clients, tokens that
-- are refreshed, proxies. Everything added has a default, so that processes of the version
-- before go on writing what they know.

-- +goose Up
ALTER TABLE providers
    ADD COLUMN kind                TEXT NOT NULL DEFAULT '',
    ADD COLUMN quota               TEXT NOT NULL DEFAULT '{}',
    ADD COLUMN egress_shared       BOOLEAN,
    ADD COLUMN oauth               TEXT NOT NULL DEFAULT '{}',
    ADD COLUMN oauth_client_secret TEXT NOT NULL DEFAULT '' CHECK (oauth_client_secret = '' OR oauth_client_secret LIKE 'v_:%');

ALTER TABLE connections
    ADD COLUMN credential_form    TEXT    NOT NULL DEFAULT 'api_key' CHECK (credential_form IN ('api_key', 'tokens')),
    ADD COLUMN refresh_token      TEXT    NOT NULL DEFAULT '' CHECK (refresh_token = '' OR refresh_token LIKE 'v_:%'),
    ADD COLUMN token_expires_at   BIGINT  NOT NULL DEFAULT 0,
    ADD COLUMN token_generation   BIGINT  NOT NULL DEFAULT 0,
    ADD COLUMN passthrough_models BOOLEAN,
    ADD COLUMN disable_cooling    BOOLEAN NOT NULL DEFAULT FALSE,
    ADD COLUMN proxy              TEXT    NOT NULL DEFAULT '' CHECK (proxy = '' OR proxy LIKE 'v_:%'),
    ADD COLUMN local_address      TEXT    NOT NULL DEFAULT '';

CREATE TABLE connection_tokens (
    connection_id TEXT   NOT NULL PRIMARY KEY REFERENCES connections (id) ON DELETE CASCADE,
    generation    BIGINT NOT NULL CHECK (generation > 0),
    tokens        TEXT   NOT NULL CHECK (tokens LIKE 'v_:%'),
    expires_at    BIGINT NOT NULL,
    declared      TEXT   NOT NULL CHECK (length(declared) = 64),
    updated_at    BIGINT NOT NULL
);

-- +goose Down
DROP TABLE connection_tokens;

ALTER TABLE connections
    DROP COLUMN local_address,
    DROP COLUMN proxy,
    DROP COLUMN disable_cooling,
    DROP COLUMN passthrough_models,
    DROP COLUMN token_generation,
    DROP COLUMN token_expires_at,
    DROP COLUMN refresh_token,
    DROP COLUMN credential_form;

ALTER TABLE providers
    DROP COLUMN oauth_client_secret,
    DROP COLUMN oauth,
    DROP COLUMN egress_shared,
    DROP COLUMN quota,
    DROP COLUMN kind;
