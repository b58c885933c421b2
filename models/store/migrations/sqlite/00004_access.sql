-- How providers are reached and authenticated to: kinds and quotas, OAuth clients, tokens that
-- are refreshed, proxies. Everything added has a default, so that processes of the version
-- before go on writing what they know.

-- +goose Up
ALTER TABLE providers ADD COLUMN kind                TEXT NOT NULL DEFAULT '';
ALTER TABLE providers ADD COLUMN quota               TEXT NOT NULL DEFAULT '{}';
ALTER TABLE providers ADD COLUMN egress_shared       NUMERIC;
ALTER TABLE providers ADD COLUMN oauth               TEXT NOT NULL DEFAULT '{}';
ALTER TABLE providers ADD COLUMN oauth_client_secret TEXT NOT NULL DEFAULT '' CHECK (oauth_client_secret = '' OR oauth_client_secret LIKE 'v_:%');

ALTER TABLE connections ADD COLUMN credential_form    TEXT    NOT NULL DEFAULT 'api_key' CHECK (credential_form IN ('api_key', 'tokens'));
ALTER TABLE connections ADD COLUMN refresh_token      TEXT    NOT NULL DEFAULT '' CHECK (refresh_token = '' OR refresh_token LIKE 'v_:%');
ALTER TABLE connections ADD COLUMN token_expires_at   INTEGER NOT NULL DEFAULT 0;
ALTER TABLE connections ADD COLUMN token_generation   INTEGER NOT NULL DEFAULT 0;
ALTER TABLE connections ADD COLUMN passthrough_models NUMERIC;
ALTER TABLE connections ADD COLUMN disable_cooling    NUMERIC NOT NULL DEFAULT FALSE;
ALTER TABLE connections ADD COLUMN proxy              TEXT    NOT NULL DEFAULT '' CHECK (proxy = '' OR proxy LIKE 'v_:%');
ALTER TABLE connections ADD COLUMN local_address      TEXT    NOT NULL DEFAULT '';

CREATE TABLE connection_tokens (
    connection_id TEXT    NOT NULL PRIMARY KEY REFERENCES connections (id) ON DELETE CASCADE,
    generation    INTEGER NOT NULL CHECK (generation > 0),
    tokens        TEXT    NOT NULL CHECK (tokens LIKE 'v_:%'),
    expires_at    INTEGER NOT NULL,
    declared      TEXT    NOT NULL CHECK (length(declared) = 64),
    updated_at    INTEGER NOT NULL
);

-- +goose Down
DROP TABLE connection_tokens;

ALTER TABLE connections DROP COLUMN local_address;
ALTER TABLE connections DROP COLUMN proxy;
ALTER TABLE connections DROP COLUMN disable_cooling;
ALTER TABLE connections DROP COLUMN passthrough_models;
ALTER TABLE connections DROP COLUMN token_generation;
ALTER TABLE connections DROP COLUMN token_expires_at;
ALTER TABLE connections DROP COLUMN refresh_token;
ALTER TABLE connections DROP COLUMN credential_form;

ALTER TABLE providers DROP COLUMN oauth_client_secret;
ALTER TABLE providers DROP COLUMN oauth;
ALTER TABLE providers DROP COLUMN egress_shared;
ALTER TABLE providers DROP COLUMN quota;
ALTER TABLE providers DROP COLUMN kind;
