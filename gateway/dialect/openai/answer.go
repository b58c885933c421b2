package openai

import (
	"omniroute/gateway/dialect/wire"
	"omniroute/models"
	"omniroute/models/failure"
)

// CheckAnswer judges the whole body of an answer that is not a stream: its usage, and the
// kind of failure when a 200 is not an answer at all; an empty kind means that it is one.
// mayBeEmpty is Tap.MayBeEmpty.
func CheckAnswer(body []byte, mayBeEmpty bool) (Usage, failure.Kind) {
	trimmed := trim(body)
	if len(trimmed) == 0 {
		return Usage{}, failure.KindEmpty
	}
	if wire.KindOf(trimmed) != wire.Object || !wire.Valid(trimmed) {
		return Usage{}, failure.KindMalformed
	}
	tap := Tap{MayBeEmpty: mayBeEmpty}
	meaning := tap.lookAtObject(trimmed)
	switch {
	case meaning.Has(Failed), meaning.Has(Bare):
		return tap.Usage, failure.KindInStream
	case meaning.Has(Content):
		return tap.Usage, ""
	case tap.started == 0 && wire.Field(trimmed, "choices") == nil:
		return tap.Usage, failure.KindMalformed
	default:
		return tap.Usage, failure.KindEmpty
	}
}

// DoneEvent ends a stream.
const DoneEvent = "data: [DONE]\n\n"

// ErrorBody is the envelope of an error, with what a *models.Error adds beside it.
func ErrorBody(e *models.Error) []byte {
	envelope := struct {
		Error       errorObject `json:"error"`
		Diagnostics any         `json:"diagnostics,omitempty"`
	}{Error: objectOf(e), Diagnostics: e.Details}
	return marshal(envelope)
}

// ErrorEvent is the event that ends a stream which broke after bytes had reached the client.
func ErrorEvent(e *models.Error) []byte {
	return append(append([]byte("data: "), marshal(struct {
		Error errorObject `json:"error"`
	}{objectOf(e)})...), "\n\n"...)
}

type errorObject struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
}

func objectOf(e *models.Error) errorObject {
	object := errorObject{Message: e.Message, Type: e.ShownType(), Code: e.ShownCode()}
	if e.Param != "" {
		object.Param = &e.Param
	}
	return object
}
