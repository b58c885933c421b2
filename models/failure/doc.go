// Package failure turns what an upstream answered into a verdict: what is out, for how
// long, who is to blame and whether another target may be tried. It is pure.
//
// # The order of the engine
//
// Classify asks in this order, and the first that knows decides (guide sections 3 and 7):
//
//  1. What is known. The error object is parsed once (upstream.go): its message, code and
//     type, in whichever envelope they come. Nothing else of a body ever decides, for it may
//     echo what the user wrote; what the message itself quotes is left out for the same reason
//     (quotation.go). An error inside a 200 answer counts as the status it amounts to.
//  2. Restatement (restate.go): where a provider means another status than it sends, the
//     meant one counts from here on. The operator's statusRestatements, then the built-in ones.
//  3. Hints (hint*.go): how long the upstream asks to stay away, from headers, fields or
//     words, capped by where it was found.
//  4. A responsePredicate that names a reason (predicate.go).
//  5. The operator's providerErrorRules (ruleset.go), at every status.
//  6. The built-in rules of the kind of provider (builtin.go), at every status.
//  7. The general table (table.go), each line of it guarded by statuses.
//
// A rule or a line of the table names the smallest thing that explains the failure. Where a
// provider counts per model, what would be about the account's quota is about the model's
// family instead, unless a rule says otherwise or requests are counted by address.
//
// A wait that is declared, by the upstream or in its documentation, is a Hint and is honoured
// as it is. A rule's cooldown, and a guess at a wait that nobody declared, is Fixed. With
// neither the backoff of the policy decides.
package failure
