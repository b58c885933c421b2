package wire

import (
	"encoding/json"
	"fmt"

	"omniroute/models"
)

// longestModelName bounds the model name of a request, in bytes.
const longestModelName = 512

// Chat is what the gateway needs to know of a chat completion request, with the places it
// may have to edit. It does not hold the body.
type Chat struct {
	Model  string
	Stream bool
	// IncludeUsage says that the client itself asked for the usage event of a stream.
	IncludeUsage bool
	// Stops says that the client gave stop sequences: an answer may then end before it began.
	Stops bool
	// Choices is how many answers the client wants, at least 1.
	Choices int64

	model   span
	options span // the value of stream_options; empty when absent
	usage   span // the value of stream_options.include_usage; empty when absent
	end     int  // offset of the closing brace
}

type span struct{ from, to int }

func (s span) empty() bool { return s.to == 0 }

// allowed says which kinds of values a field of a chat request may have.
type allowed struct {
	name  string
	kinds []Kind
	what  string
}

// The fields the gateway checks, each at most once in a request. Whatever else a client
// sends is the upstream's to judge and passes untouched. The first six are acted on.
var chatFields = []allowed{
	{"model", []Kind{String}, "a string"},
	{"messages", []Kind{Array}, "an array"},
	{"stream", []Kind{Bool, Null}, "a boolean"},
	{"stream_options", []Kind{Object, Null}, "an object"},
	{"stop", []Kind{String, Array, Null}, "a string or an array"},
	{"n", []Kind{Number, Null}, "an integer"},
	{"temperature", []Kind{Number, Null}, "a number"},
	{"top_p", []Kind{Number, Null}, "a number"},
	{"max_tokens", []Kind{Number, Null}, "an integer"},
	{"max_completion_tokens", []Kind{Number, Null}, "an integer"},
	{"presence_penalty", []Kind{Number, Null}, "a number"},
	{"frequency_penalty", []Kind{Number, Null}, "a number"},
	{"seed", []Kind{Number, Null}, "an integer"},
	{"tools", []Kind{Array, Null}, "an array"},
	{"tool_choice", []Kind{String, Object, Null}, "a string or an object"},
	{"response_format", []Kind{Object, Null}, "an object"},
	{"user", []Kind{String, Null}, "a string"},
}

const (
	fieldModel = iota
	fieldMessages
	fieldStream
	fieldStreamOptions
	fieldStop
	fieldChoices
)

// PeekChat validates the body of a chat completion request once and reads what routing
// needs. A refusal is a *models.Error that names the field at fault.
func PeekChat(body []byte) (*Chat, *models.Error) {
	if len(body) == 0 {
		return nil, models.Errorf(models.CodeInvalidJSON, "The request body is empty; send a JSON object.")
	}
	if !Valid(body) {
		return nil, models.Errorf(models.CodeInvalidJSON, "The request body is not valid JSON: %s.", Explain(body))
	}
	start := skipSpace(body, 0)
	if body[start] != '{' {
		return nil, models.Errorf(models.CodeInvalidRequest, "The request body must be a JSON object.")
	}

	chat := &Chat{Choices: 1, end: lastByte(body)}
	var seen uint32
	fields := ObjectOf(body)
	for fields.Next() {
		index := chatField(&fields)
		if index < 0 {
			continue
		}
		field := chatFields[index]
		if seen&(1<<index) != 0 {
			return nil, invalid(field.name, "The field %q appears more than once.", field.name)
		}
		seen |= 1 << index
		if !oneOf(KindOf(fields.Value), field.kinds) {
			return nil, invalid(field.name, "The field %q must be %s.", field.name, field.what)
		}
		if refusal := chat.take(index, &fields); refusal != nil {
			return nil, refusal
		}
	}
	if seen&(1<<fieldModel) == 0 {
		return nil, invalid("model", "The field \"model\" is required.")
	}
	if seen&(1<<fieldMessages) == 0 {
		return nil, invalid("messages", "The field \"messages\" is required.")
	}
	return chat, nil
}

func chatField(fields *Fields) int {
	for i := range chatFields {
		if fields.Is(chatFields[i].name) {
			return i
		}
	}
	return -1
}

func oneOf(kind Kind, kinds []Kind) bool {
	for _, k := range kinds {
		if k == kind {
			return true
		}
	}
	return false
}

// take reads a field the gateway acts on.
func (c *Chat) take(index int, fields *Fields) *models.Error {
	at := span{fields.ValueAt, fields.ValueAt + len(fields.Value)}
	switch index {
	case fieldModel:
		c.model, c.Model = at, Text(fields.Value)
		if c.Model == "" || len(c.Model) > longestModelName {
			return invalid("model", "The field \"model\" must be a string of 1 to %d bytes.", longestModelName)
		}
	case fieldStream:
		c.Stream = fields.Value[0] == 't'
	case fieldStreamOptions:
		c.options = at
		return c.takeStreamOptions(fields.Value, fields.ValueAt)
	case fieldStop:
		c.Stops = !isBlank(fields.Value)
	case fieldChoices:
		c.Choices = max(1, Int(fields.Value))
	case fieldMessages:
		return checkMessages(fields.Value)
	}
	return nil
}

// isBlank reports whether a validated string, array or null holds nothing.
func isBlank(value []byte) bool {
	items := ArrayOf(value)
	return !items.Next() && (KindOf(value) != String || len(value) == len(`""`))
}

func (c *Chat) takeStreamOptions(value []byte, offset int) *models.Error {
	options := ObjectOf(value)
	for options.Next() {
		if !options.Is("include_usage") {
			continue
		}
		const name = "stream_options.include_usage"
		if !c.usage.empty() {
			return invalid(name, "The field %q appears more than once.", name)
		}
		kind := KindOf(options.Value)
		if kind != Bool && kind != Null {
			return invalid(name, "The field %q must be a boolean.", name)
		}
		c.IncludeUsage = options.Value[0] == 't'
		c.usage = span{offset + options.ValueAt, offset + options.ValueAt + len(options.Value)}
	}
	return nil
}

func checkMessages(value []byte) *models.Error {
	count := 0
	messages := ArrayOf(value)
	for messages.Next() {
		if KindOf(messages.Value) != Object {
			name := fmt.Sprintf("messages[%d]", count)
			return invalid(name, "The field %q must be an object.", name)
		}
		if refusal := checkMessage(messages.Value, count); refusal != nil {
			return refusal
		}
		count++
	}
	if count == 0 {
		return invalid("messages", "The field \"messages\" must not be empty.")
	}
	return nil
}

func checkMessage(message []byte, index int) *models.Error {
	role, content := 0, 0
	fields := ObjectOf(message)
	for fields.Next() {
		switch {
		case fields.Is("role"):
			role++
			if KindOf(fields.Value) != String || len(fields.Value) == len(`""`) {
				name := fmt.Sprintf("messages[%d].role", index)
				return invalid(name, "The field %q must be a string that is not empty.", name)
			}
		case fields.Is("content"):
			content++
			if kind := KindOf(fields.Value); kind != String && kind != Array && kind != Null {
				name := fmt.Sprintf("messages[%d].content", index)
				return invalid(name, "The field %q must be a string or an array.", name)
			}
		}
	}
	switch {
	case role == 0:
		name := fmt.Sprintf("messages[%d].role", index)
		return invalid(name, "The field %q is required.", name)
	case role > 1:
		name := fmt.Sprintf("messages[%d].role", index)
		return invalid(name, "The field %q appears more than once.", name)
	case content > 1:
		name := fmt.Sprintf("messages[%d].content", index)
		return invalid(name, "The field %q appears more than once.", name)
	}
	return nil
}

func invalid(field, format string, args ...any) *models.Error {
	return models.Errorf(models.CodeInvalidRequest, format, args...).WithParam(field)
}

// lastByte returns the offset of the object's closing brace in a validated body.
func lastByte(body []byte) int {
	end := len(body) - 1
	for end > 0 && body[end] != '}' {
		end--
	}
	return end
}

// For derives the body of one attempt: the model's name at the provider and, for a stream,
// stream_options.include_usage switched on so that tokens can be booked. Every other byte
// stays as the client sent it. body is the one that was peeked and is never changed; it is
// returned itself when nothing differs.
func (c *Chat) For(body []byte, model string) []byte {
	var edits [2]edit
	n := 0
	if model != c.Model {
		edits[n] = edit{c.model, quote(model)}
		n++
	}
	if c.Stream && !c.IncludeUsage {
		edits[n] = c.askForUsage(body)
		n++
	}
	if n == 0 {
		return body
	}
	if n == 2 && edits[1].at.from < edits[0].at.from {
		edits[0], edits[1] = edits[1], edits[0]
	}
	return splice(body, edits[:n])
}

func (c *Chat) askForUsage(body []byte) edit {
	switch {
	case !c.usage.empty():
		return edit{c.usage, "true"}
	case c.options.empty():
		return edit{span{c.end, c.end}, `,"stream_options":{"include_usage":true}`}
	case body[c.options.from] != '{': // null
		return edit{c.options, `{"include_usage":true}`}
	default:
		inside := span{c.options.from + 1, c.options.from + 1}
		if body[skipSpace(body, inside.from)] == '}' {
			return edit{inside, `"include_usage":true`}
		}
		return edit{inside, `"include_usage":true,`}
	}
}

// edit replaces the bytes at a place by text; an empty place inserts.
type edit struct {
	at   span
	text string
}

// splice applies edits, which are in order and do not overlap, in one allocation.
func splice(body []byte, edits []edit) []byte {
	size := len(body)
	for _, e := range edits {
		size += len(e.text) - (e.at.to - e.at.from)
	}
	out := make([]byte, 0, size)
	from := 0
	for _, e := range edits {
		out = append(out, body[from:e.at.from]...)
		out = append(out, e.text...)
		from = e.at.to
	}
	return append(out, body[from:]...)
}

func quote(text string) string {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			quoted, err := json.Marshal(text)
			if err != nil { // a string always marshals
				panic(err)
			}
			return string(quoted)
		}
	}
	return `"` + text + `"`
}
