// Package gitdir knows which parts of a git repository make git run a program. It removes them from
// repositories that a hostile program wrote.
//
// # The story
//
// Git obeys the files in a repository. Its configuration names programs (core.fsmonitor, aliases,
// filters), its hooks are programs, and the state of a stopped rebase holds lines to execute. So a
// program that may write to a directory can plant a repository there. A shell prompt that runs "git
// status" then runs the planted program.
//
// [Parse] reads a configuration as git does. [Harmless] reports that it holds only settings that
// run no program, and [Sanitise] keeps just those. Both use a list of harmless settings. So a
// setting that git learns later is not on it.
//
// An [Audit] walks the directories that were writable, when no process writes to them any more. It
// treats as a repository any .git of any kind, any directory with objects and refs, and every
// directory that these lead to. It judges those that were made, changed or moved since the program
// started. The repository still works afterwards: with its commits, branches, remotes and the
// user's name.
//
// # What counts as old
//
// Nobody can set a file's status change time. Renaming a file changes the file's own time, and
// renaming a directory changes only that directory's time. So a file is unchanged if its time is
// older than the program's start. It is still in its place if its repository was seen there before
// ([Audit].Before), or if the times of all directories above it are old too.
//
// # Threat
//
// A hostile program, which has ended, wrote everything that this package reads. The package follows
// no link on the way to a file that it changes. It handles any number of repositories: only the
// size of the tree bounds the walk. A path that can't be examined (because it is longer than the
// system allows) is moved away, and Audit returns an error.
package gitdir
