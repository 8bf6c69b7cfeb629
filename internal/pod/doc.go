// Package pod keeps one sandbox for the life of a Kubernetes pod, and speaks the protocol that
// agent-sandbox's clients speak to a pod.
//
// # Life
//
// [Open] makes the sandbox, or finds the one that an earlier pod left in the data directory and
// resumes it. [Keeper.Close] pauses it with its memory. So a Sandbox object whose operatingMode
// goes from Suspended back to Running has its processes again, if the data directory is on a
// volume that outlives the pod. A sandbox that can't be resumed is left as it is, and Open says
// why: nothing is thrown away that someone may still want.
//
// The sandbox has the name [Name] in its project. If it ends by itself, the keeper makes no other
// one: [Keeper.Alive] says so, the pod's liveness probe fails, and Kubernetes starts the container
// anew.
//
// # Protocol
//
// [Keeper.Handler] serves what agent-sandbox v1.0.3 calls its Python runtime:
//
//	GET  /              200 when the sandbox answers
//	POST /execute       {"command": LINE} → {"stdout", "stderr", "exit_code"}
//	POST /upload        a form with the file in the field "file"; its file name is the path
//	GET  /download/PATH the file's bytes
//	GET  /list/PATH     [{"name", "size", "type": "file" or "directory", "mod_time": seconds}]
//	GET  /exists/PATH   {"path", "exists"}
//
// Paths are relative to the working directory of the sandbox, and lead nowhere else: neither by ".."
// nor by a leading slash. A symbolic link in there may lead to other files of the sandbox, which
// /execute reaches anyway. The protocol knows no credentials: whoever reaches the port commands
// the sandbox. In a cluster a NetworkPolicy decides who that is.
//
// # Threat
//
// Requests come from any peer in the cluster that the network lets through, and output comes from
// a hostile sandbox. Bodies, output and listings are bounded. No request reaches the daemon's
// files: every path goes to the guest.
package pod
