package routing

// Memory is what the strategies of one combo remember from request to request: cursors, decks,
// pins. The zero value remembers nothing. It is a value without a lock; whoever owns it keeps
// one. What it holds is bounded by the combo's targets.
type Memory struct{}
