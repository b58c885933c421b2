package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/gorilla/mux"
	"github.com/sirupsen/logrus"

	"omniroute/gateway/access"
	"omniroute/models"
)

const (
	maxCatalogBytes = 8 << 20
	maxBodyBytes    = 64 << 10
)

// Handler serves every route of the management API; it is mounted under /api/.
func (s *Service) Handler() http.Handler {
	r := mux.NewRouter().SkipClean(true).UseEncodedPath().StrictSlash(false)
	r.HandleFunc("/api/monitoring/health", s.serveHealth).Methods(http.MethodGet, http.MethodHead)
	r.HandleFunc("/api/settings", s.managed(s.serveSettings(allSettings))).Methods(http.MethodGet)
	r.HandleFunc("/api/settings", s.managed(s.servePatch(allSettings))).Methods(http.MethodPatch)
	r.HandleFunc("/api/resilience", s.managed(s.serveSettings(resilienceView))).Methods(http.MethodGet)
	r.HandleFunc("/api/resilience", s.managed(s.servePatch(resilienceView))).Methods(http.MethodPatch)
	r.HandleFunc("/api/resilience/reset", s.managed(s.serveReset)).Methods(http.MethodPost)
	r.HandleFunc("/api/resilience/model-cooldowns", s.managed(s.serveLockouts)).Methods(http.MethodGet)
	r.HandleFunc("/api/resilience/model-cooldowns", s.managed(s.serveEnable)).Methods(http.MethodDelete)
	r.HandleFunc("/api/resilience/cooldowns", s.managed(s.serveCooldowns)).Methods(http.MethodGet)
	r.HandleFunc("/api/resilience/cooldowns", s.managed(s.serveClear)).Methods(http.MethodDelete)
	r.HandleFunc("/api/audit", s.managed(s.serveAudit)).Methods(http.MethodGet)
	r.HandleFunc("/api/catalog/apply", s.managed(s.serveApply)).Methods(http.MethodPost)
	r.HandleFunc("/api/catalog/export", s.managed(s.serveExport)).Methods(http.MethodGet)
	r.HandleFunc("/api/requests/{id}", s.managed(s.serveRequest)).Methods(http.MethodGet)
	r.NotFoundHandler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, s.authenticate(r), models.Errorf(models.CodeNotFound, "There is no %s in the management API.", r.URL.Path))
	})
	r.MethodNotAllowedHandler = http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		w.Header().Set("Allow", access.Methods(request, func(other *http.Request) bool {
			match := mux.RouteMatch{}
			return r.Match(other, &match) && match.MatchErr == nil
		}))
		s.fail(w, request, s.authenticate(request), models.Errorf(models.CodeMethodNotAllowed, "%s does not take %s.", request.URL.Path, request.Method))
	})
	return r
}

// operation is a handler of a caller that may manage. What it returns is the answer.
type operation func(w http.ResponseWriter, r *http.Request, who principal) error

// managed guards an operation.
func (s *Service) managed(op operation) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who := s.authenticate(r)
		if denied := who.mayManage(); denied != nil {
			s.fail(w, r, who, denied)
			return
		}
		if err := op(w, r, who); err != nil {
			s.fail(w, r, who, err)
		}
	}
}

// answer writes a JSON document that no cache may keep.
func answer(w http.ResponseWriter, status int, document any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(document) // the client left; there is nobody to tell
}

// envelope is the error document of the management API, OpenAI's with details.
type envelope struct {
	Error envelopeError `json:"error"`
}

type envelopeError struct {
	Message string      `json:"message"`
	Type    string      `json:"type"`
	Code    models.Code `json:"code"`
	Param   string      `json:"param,omitempty"`
	Details any         `json:"details,omitempty"`
}

// fail answers with a coded error, which is logged as the caller's or as ours; any other error
// is ours, logged and not shown.
func (s *Service) fail(w http.ResponseWriter, r *http.Request, who principal, err error) {
	var coded *models.Error
	if !errors.As(err, &coded) {
		coded = models.Errorf(models.CodeInternal, "The operation failed; the log of replica %s says why.", s.o.Replica).WithCause(err)
	}
	if coded.Status() >= http.StatusInternalServerError {
		s.o.Log.WithError(models.Root(coded)).WithFields(logrus.Fields{
			"code": coded.Code, "method": r.Method, "path": r.URL.Path,
		}).Warn("management operation failed")
	} else {
		s.o.Refusals.Note(r, access.Refusal{Request: w.Header().Get("X-Request-Id"), Who: who.actor, Err: coded})
	}
	if coded.Code == models.CodeInvalidAPIKey {
		w.Header().Set("WWW-Authenticate", `Bearer realm="omniroute"`)
	}
	if seconds := coded.RetryAfterSeconds(); seconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	answer(w, coded.Status(), envelope{envelopeError{
		Message: coded.Message, Type: coded.Code.Type(), Code: coded.Code, Param: coded.Param, Details: coded.Details,
	}})
}

// decode reads a strict JSON body; an empty body leaves target as it is.
func decode(w http.ResponseWriter, r *http.Request, target any) error {
	body, err := readBody(w, r, maxBodyBytes)
	if err != nil {
		return err
	}
	return decodeStrict(body, target)
}

// readBody reads a whole body that may have a bounded number of bytes.
func readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, models.Errorf(models.CodeBodyTooLarge, "The body is larger than %d bytes.", tooLarge.Limit)
	case err != nil:
		return nil, models.Errorf(models.CodeInvalidRequest, "The body could not be read.").WithCause(err)
	}
	return body, nil
}

func decodeStrict(body []byte, target any) error {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(target)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err == nil && decoder.More() {
		err = errors.New("more than one JSON value")
	}
	if err != nil {
		return models.Errorf(models.CodeInvalidJSON, "The body is not what this operation takes: %v.", err)
	}
	return nil
}
