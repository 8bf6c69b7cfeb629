package settings

// gitDirs opens what a commit in a worktree writes to.
func (v *resolver) gitDirs() {}
