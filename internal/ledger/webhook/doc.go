// Package webhook tells programs what happens to sandboxes: lists of events in E2B's form, and
// webhooks, to which each event is sent.
//
// # Delivery
//
// A [Hooks] reads the durable events of the service and sends each one that a webhook asks for. It
// is delivered at least once: it counts as delivered only when an answer with a status from 200 to
// 299 was recorded. The events of one sandbox are sent in order, one after the other. An event that
// fails is sent again with growing waits. After a day it is dead: it waits in the list of dead
// deliveries until it is replayed or its event is forgotten.
//
// A webhook's file holds what was settled beyond a position, and the position is a number of the
// events' order. So after kill -9 the next process goes on at the same place. It may repeat
// deliveries whose answer was not recorded; the event's ID tells the receiver.
//
// # Threat
//
// The address of a webhook is the caller's choice, and the daemon has connections that the caller
// does not have. So the sender looks a host up once, refuses it if any of its addresses is not
// public, and dials only addresses that it judged. It needs TLS, follows no redirect and uses no
// proxy. The operator can allow hosts. A receiver may answer slowly, for ever or with anything: an
// attempt has one time limit, and of the answer only the status is used. No receiver can hold more
// than a few of the connections, and no webhook holds memory without bound: it stops reading events
// while too many wait.
//
// An event holds no token and no environment. Metadata and messages may hold a secret by mistake, so
// Options.Redact sees each text.
//
// # Locks
//
//	Hooks      the webhooks               Hooks.mu
//	runner     what waits and its file    runner.mu, after Hooks.mu
//	Hooks      turns of projects          Hooks.sharesMu, alone
package webhook
