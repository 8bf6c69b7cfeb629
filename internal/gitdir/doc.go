// Package gitdir knows what in a git repository makes git run a program, and takes that out of repositories that a
// hostile program wrote.
//
// # The story
//
// Git obeys what lies in a repository. Its configuration names programs (core.fsmonitor, aliases, filters), its hooks are
// programs, and the state of a rebase that was stopped has lines to execute. So whoever may write to a directory can plant a
// repository there, and a prompt that runs "git status" runs what was planted.
//
// [Parse] reads a configuration as git does. [Harmless] says that it has nothing but settings which run nothing, [Sanitise]
// keeps just those. They go by a list of what is harmless: a setting that git learns tomorrow is not on it.
//
// An [Audit] walks the directories that were writable, when nothing writes to them any more. It takes any .git for a
// repository, whatever it is, any directory with objects and refs, and what these lead to. It judges those that were made,
// changed or moved since the program started, and leaves a repository that still works: with its commits, branches,
// remotes and the user's name.
//
// # What counts as old
//
// A file's status change time can't be set by anybody. Renaming a file changes its own, and renaming a directory
// that directory's alone. So a file is as it was if its time is older than the program's start, and it is where it was if its
// repository was seen there before ([Audit].Before), or if the times of all directories above it are old too.
//
// # Threat
//
// All that is read here was written by a hostile program, which has ended. No link is followed on the way to anything that is
// changed. No number of repositories is too large: the walk has no bound but the tree. What can't be looked at (a path longer than the system
// takes) is moved out of the way, and Audit returns an error.
package gitdir
