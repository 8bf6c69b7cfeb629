// Package inbox keeps the connections that policies hold until a person answers.
//
// # The story
//
// The wire calls [Inbox.Ask] with a connection that a rule with "ask" matches. Ask returns when a
// person has answered, when the time is over, or when the connection is gone. Equal connections are
// one question. [Inbox.Answer] answers it for all of them. An answer for an hour is kept: Ask
// returns it at once for later equal questions.
//
// # Threat
//
// The sandbox decides how many questions there are, and when. It wants to be let out by mistake:
//
//   - It floods the inbox. The connections that are held are bounded for each sandbox, for each
//     project and in all. So is the rate of new questions. What is above a bound is refused at once.
//   - It changes a question between the look of a person and the answer. A question's ID stands for
//     its sandbox, host, port, rule and request, and none of them ever changes.
//   - It guesses IDs. They are 128 random bits, and no caller from inside a sandbox may answer.
//   - It leaves a question behind, for an answer that comes when nobody waits. A question ends with
//     its last connection, and an answer to it is then NotFound.
//
// Everything is in memory. After a restart of the daemon no question is left, and no answer either.
//
// No lock is held while a callback runs.
package inbox
