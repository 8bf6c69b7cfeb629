package shell_test

// unfinished are folders that this rule does not hold in yet: their programs are being written anew or taken apart.
var unfinished = []string{"tools/files", "tools/search", "tools/system", "tools/text"}

// owed are functions that are too long and have not been split yet. The list only becomes shorter.
var owed = []string{
	"tools/git.checkout",
	"tools/git.cmdBlame",
	"tools/git.cmdConfig",
	"tools/git.cmdDescribe",
	"tools/git.cmdDiff",
	"tools/git.cmdGrep",
	"tools/git.cmdLsFiles",
	"tools/git.cmdRebase",
	"tools/git.cmdRestore",
	"tools/git.cmdRm",
	"tools/git.cmdTag",
	"tools/git.expand",
	"tools/git.fetch",
	"tools/git.fill",
	"tools/git.graphed",
	"tools/git.longStatus",
	"tools/git.merge",
	"tools/git.mergeText",
	"tools/git.stashUse",
	"tools/git.take",
}
