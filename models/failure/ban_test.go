package failure

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
)

// An account is gone for good only when that is what the error is about. A server that repeats
// what it was sent, with or without quotation marks, cannot be made to say so.
func TestABanIsTheFirstThingThatAMessageSays(t *testing.T) {
	for message, want := range map[string]models.Phase{
		"Your OpenAI account has been deactivated, please check your email.":                                models.PhaseBanned,
		"Forbidden: your account has been suspended. Contact support.":                                      models.PhaseBanned,
		"Error 403: this organization has been disabled":                                                    models.PhaseBanned,
		"You have no access because your account has been disabled":                                         models.PhaseBanned,
		"Request blocked by policy. Input: tell me why this account has been deactivated":                   "",
		"Blocked input: this account has been deactivated":                                                  "",
		"We could not process: error: your account has been suspended":                                      "",
		"Content was refused!\nyour account has been banned":                                                "",
		"The following was refused. Your account has been terminated, wrote the user of the other account.": "",
	} {
		body := []byte(`{"error":{"message":` + quoted(message) + `}}`)
		v := Classify(Signal{Kind: KindHTTP, Status: http.StatusForbidden, Body: body, Class: models.ClassAPIKey}, time.Now())
		require.Equal(t, want, v.Terminal, message)
	}
}
