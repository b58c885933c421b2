package models

import (
	"errors"
	"fmt"
	"time"
)

// Code is the stable, machine-readable name of an error. Clients depend on it.
type Code string

// Codes the gateway answers with.
const (
	CodeInvalidJSON        Code = "invalid_json"
	CodeInvalidRequest     Code = "invalid_request"
	CodeBodyTooLarge       Code = "request_too_large"
	CodeInvalidAPIKey      Code = "invalid_api_key"
	CodeModelNotAllowed    Code = "model_not_allowed"
	CodeForbidden          Code = "insufficient_scope"
	CodeModelNotFound      Code = "model_not_found"
	CodeNotFound           Code = "not_found"
	CodeMethodNotAllowed   Code = "method_not_allowed"
	CodePreconditionFailed Code = "precondition_failed"
	CodeNoTargets          Code = "no_executable_targets"
	CodeAllCoolingDown     Code = "all_targets_cooling_down"
	CodeAllInactive        Code = "all_accounts_inactive"
	CodeUpstreamFailed     Code = "upstream_error"
	CodeUpstreamRejected   Code = "upstream_rejected"
	CodeUpstreamRateLimit  Code = "rate_limit_exceeded"
	CodeConnectTimeout     Code = "upstream_connect_timeout"
	CodeHeaderTimeout      Code = "upstream_header_timeout"
	CodeFirstContentLate   Code = "stream_readiness_timeout"
	CodeIdleTimeout        Code = "stream_idle_timeout"
	CodeTotalTimeout       Code = "upstream_total_timeout"
	CodeStreamCut          Code = "stream_cut"
	CodeStreamEventTooBig  Code = "stream_event_too_large"
	CodeEmptyResponse      Code = "upstream_empty_response"
	CodeMalformedResponse  Code = "upstream_malformed_response"
	CodeQueueFull          Code = "RATE_LIMIT_QUEUE_FULL"
	CodeClientClosed       Code = "client_closed_request"
	CodeShuttingDown       Code = "shutting_down"
	CodeCatalogUnavailable Code = "catalog_unavailable"
	CodeDurableUnavailable Code = "temporal_unavailable"
	CodeInternal           Code = "internal_error"
)

type codeInfo struct {
	status int
	kind   string // the "type" of OpenAI's error envelope
}

// The one table from code to HTTP status and envelope type.
var codes = map[Code]codeInfo{
	CodeInvalidJSON:        {400, "invalid_request_error"},
	CodeInvalidRequest:     {400, "invalid_request_error"},
	CodeBodyTooLarge:       {413, "invalid_request_error"},
	CodeInvalidAPIKey:      {401, "authentication_error"},
	CodeModelNotAllowed:    {403, "permission_error"},
	CodeForbidden:          {403, "permission_error"},
	CodeModelNotFound:      {404, "invalid_request_error"},
	CodeNotFound:           {404, "invalid_request_error"},
	CodeMethodNotAllowed:   {405, "invalid_request_error"},
	CodePreconditionFailed: {412, "invalid_request_error"},
	CodeNoTargets:          {404, "invalid_request_error"},
	CodeAllCoolingDown:     {503, "service_unavailable"},
	CodeAllInactive:        {503, "service_unavailable"},
	CodeUpstreamFailed:     {502, "upstream_error"},
	CodeUpstreamRejected:   {400, "invalid_request_error"},
	CodeUpstreamRateLimit:  {429, "rate_limit_error"},
	CodeConnectTimeout:     {504, "upstream_error"},
	CodeHeaderTimeout:      {504, "upstream_error"},
	CodeFirstContentLate:   {504, "upstream_error"},
	CodeIdleTimeout:        {504, "upstream_error"},
	CodeTotalTimeout:       {504, "upstream_error"},
	CodeStreamCut:          {502, "upstream_error"},
	CodeStreamEventTooBig:  {502, "upstream_error"},
	CodeEmptyResponse:      {502, "upstream_error"},
	CodeMalformedResponse:  {502, "upstream_error"},
	CodeQueueFull:          {429, "rate_limit_error"},
	CodeClientClosed:       {499, "client_error"},
	CodeShuttingDown:       {503, "service_unavailable"},
	CodeCatalogUnavailable: {503, "service_unavailable"},
	CodeDurableUnavailable: {503, "service_unavailable"},
	CodeInternal:           {500, "server_error"},
}

// Status is the HTTP status of the code; 500 for a code that is not in the table.
func (c Code) Status() int {
	if info, ok := codes[c]; ok {
		return info.status
	}
	return 500
}

// Type is the code's error type in OpenAI's envelope.
func (c Code) Type() string {
	if info, ok := codes[c]; ok {
		return info.kind
	}
	return "server_error"
}

// Error is what a client or an operator is told. Message is safe to show: it never holds
// a secret, and holds text from an upstream only after the user-facing whitelist.
type Error struct {
	Code    Code
	Message string
	// Param names the field of the request that is at fault, when one is.
	Param string
	// UpstreamCode and UpstreamType take the place of the code and its type in the client's
	// envelope when an upstream's own are passed on. Code stays what the gateway goes by.
	UpstreamCode string
	UpstreamType string
	// HTTPStatus overrides the code's status when an upstream's own status is passed on.
	HTTPStatus int
	// RetryAfter is how long to wait; zero when no wait helps.
	RetryAfter time.Duration
	// Details is marshalled beside the error, such as the exclusions of a plan.
	Details any
	// Cause is for logs of this process only.
	Cause error
}

// Errorf makes an Error with a formatted, client-safe message.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// WithCause sets what this process logs beside the message and returns e.
func (e *Error) WithCause(err error) *Error {
	e.Cause = err
	return e
}

// WithParam names the field at fault and returns e.
func (e *Error) WithParam(field string) *Error {
	e.Param = field
	return e
}

// Error implements error.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Root is the innermost error of a chain: what this process logs where the outer ones are
// worded for clients.
func Root(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// ShownCode is the code the client sees.
func (e *Error) ShownCode() string {
	if e.UpstreamCode != "" {
		return e.UpstreamCode
	}
	return string(e.Code)
}

// ShownType is the error type the client sees.
func (e *Error) ShownType() string {
	if e.UpstreamType != "" {
		return e.UpstreamType
	}
	return e.Code.Type()
}

// Status is the HTTP status the client sees.
func (e *Error) Status() int {
	if e.HTTPStatus != 0 {
		return e.HTTPStatus
	}
	return e.Code.Status()
}

// RetryAfterSeconds is the integer for the Retry-After header: rounded up, at least 1, and
// 0 when the error carries no wait.
func (e *Error) RetryAfterSeconds() int {
	if e.RetryAfter <= 0 {
		return 0
	}
	return int((e.RetryAfter + time.Second - 1) / time.Second)
}
