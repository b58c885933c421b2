package openai

import "encoding/json"

// Model is one entry of the model list.
type Model struct {
	ID      string `json:"id"`
	Object  string `json:"object"` // "model"
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// ModelList is the answer of GET /v1/models.
type ModelList struct {
	Object string  `json:"object"` // "list"
	Data   []Model `json:"data"`
}

// JSON encodes the list.
func (l ModelList) JSON() []byte { return marshal(l) }

// JSON encodes the entry.
func (m Model) JSON() []byte { return marshal(m) }

// marshal encodes values of this package, which always can be. Text from an upstream may
// hold broken UTF-8; the encoder replaces it.
func marshal(value any) []byte {
	encoded, err := json.Marshal(value)
	if err != nil {
		return []byte(`{"error":{"message":"The error could not be described.","type":"server_error","param":null,"code":"internal_error"}}`)
	}
	return encoded
}
