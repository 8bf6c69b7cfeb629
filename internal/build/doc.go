// Package build makes templates step by step.
//
// # The story
//
// A build is a durable record: [Engine.StartBuild] checks what is asked, writes the record into a
// directory of its own and puts it into a queue. A few builds run at once; each project has its
// turn. The steps of a build come from a [plan.Plan], which is made of E2B's instructions (here) or
// of a Dockerfile (package build/dockerfile, which the engine gets as a [Planner]).
//
// Each stage of the plan has one sandbox at a time, the workshop. It is made from the stage's base,
// or from the layer of the last step whose result is still there. A command runs in it as the
// step's user, in the step's directory, with the step's environment. After it every process that it
// left is killed, so that a step gives the same files whether the steps before it ran or came from
// the cache. Then the workshop's files are kept as a layer: a snapshot under a key. The key is a
// hash of the key before it and of everything that the step depends on. A stage whose last layer is
// there needs no workshop at all.
//
// In the end the base and the last layer's changes become one image in the template store, under
// the template's name and tags. Rebuilding a name keeps the template's lasting ID.
//
// # When the daemon dies
//
// The next engine ends the workshops that are left. It queues again the builds that were under way:
// their layers are in the cache, so they go on about where they were. A build that had secrets or
// credentials can't go on, because nothing kept those. It fails and says so.
//
// # Threats
//
// Everything that a build brings is hostile: archives, names, commands, images. Archives are read
// in the daemon with bounds on bytes and entries, and are never unpacked on the host: package
// bundle unpacks them inside the workshop. A COPY's cache key is the sum of the files themselves.
// So an upload whose name lies about its content can't take the place of another. Uploads, caches
// and layers belong to a project. Secrets and credentials are in memory only. A secret's file is
// removed from the workshop before its layer is kept.
//
// # Locks
//
// Engine.mu is above job.mu. Neither is held during work on sandboxes or files, with one exception:
// a job's record is written under job.mu.
package build
