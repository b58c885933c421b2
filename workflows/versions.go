package workflows

// Shape names the order of commands that the workflows of this release produce. Every change
// to that order gets a workflow.GetVersion mark, listed below with its date and reason, and a
// new shape. The histories recorded under testdata, one folder per shape, are replayed against
// the code in every test run.
//
// Marks: none yet.
const Shape = "1"

//go:generate sh testdata/record.sh
