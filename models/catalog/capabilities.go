package catalog

// Capabilities of models that the gateway knows the meaning of. A model may list others, which
// say something to people only.
const (
	CapabilityTools            = "tools"             // it calls functions
	CapabilityVision           = "vision"            // it takes images
	CapabilityAudioInput       = "audio_input"       // it takes sound
	CapabilityAudioOutput      = "audio_output"      // it answers in sound
	CapabilityStructuredOutput = "structured_output" // it keeps to a JSON schema
	CapabilityReasoning        = "reasoning"         // it thinks before it answers
	CapabilityCoding           = "coding"            // it is meant for code
	CapabilityEmbeddings       = "embeddings"        // it makes vectors, and answers nothing
)

// Capabilities lists those the gateway knows.
func Capabilities() []string {
	return []string{
		CapabilityTools, CapabilityVision, CapabilityAudioInput, CapabilityAudioOutput, CapabilityStructuredOutput,
		CapabilityReasoning, CapabilityCoding, CapabilityEmbeddings,
	}
}
