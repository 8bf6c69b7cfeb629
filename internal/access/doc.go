// Package access stands between the doors and what they lead to: it says who asks, and
// keeps from each caller what is not its own.
//
// # Who asks
//
// An [Authenticator] makes a [carrel.Caller] of what a door was shown: an API key, an SSH
// key, a visit to a sandbox's port, a request out of a sandbox. It is the only code that
// reads X-API-KEY, Authorization and Carrel-Tenant. The door puts the caller in the
// context.
//
// # What is seen
//
// [Service] is [carrel.Service] around a [Core], which checks nobody's rights. Each call
// is judged before the core hears of it. There is one exception: the core itself says what a
// template's reference means to the caller, because a name or ID that the caller may not use
// is passed over in favour of its own. Service judges the result once more, and has the core
// act on the ID of what was judged. A sandbox, snapshot or template of another
// project is not there: the error is the very one, made at the very place, that an ID gets
// that never was, and nothing is woken, counted or written. Lists, events and the audit
// log are filtered. What the machine itself is asked for (the pool) is for administrators,
// and Forbidden to others.
//
// The same value has all the side interfaces, so that no door asks for one by a type
// assertion.
//
// # Threat
//
// A caller who knows or guesses another's ID or name, and looks for a difference between
// "not yours" and "not there": in the answer, in its time, or in what happens to the
// thing. Names are each project's own, so that nobody finds one taken by another.
// What stays visible is that numbers of events and decisions rise when others cause some.
package access
