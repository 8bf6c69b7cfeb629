package settings

import "slices"

// Profiles lists the built-in profiles: the additional needs of popular coding agents and tools. An
// agent's own settings, commands and hooks stay protected even if their directory is opened. The
// agent would obey them the next time it runs, also outside the box.
func Profiles() []Profile {
	out := make([]Profile, 0, 24)
	for _, f := range []func() []Profile{agents, tools, attitudes} {
		out = append(out, f()...)
	}
	return out
}

// agent makes the settings of a coding agent: the directories of its state, the presets and names
// it talks to, the variables with its key.
func agent(name, description string, write []string, presets string, hosts, env []string) Profile {
	return Profile{Name: name, Description: description, Settings: Settings{
		Write: PathRules{Allow: write}, Network: NetworkRules{PolicyRef: presets, Allow: hosts}, Env: EnvRules{Pass: env},
	}}
}

// makes adds directories that the agent's first run finds made: it could not make them itself where
// only they are writable. One that is not among those that it writes only has to be there.
func (p Profile) makes(dirs ...string) Profile {
	for _, dir := range dirs {
		p.Settings.Write.Made = append(p.Settings.Write.Made, Made{Path: dir})
	}
	return p
}

// replaces adds files that the agent saves by writing beside them and renaming.
func (p Profile) replaces(files ...string) Profile {
	p.Settings.Write.Replaced = append(p.Settings.Write.Replaced, files...)
	return p
}

func agents() []Profile {
	return []Profile{
		agent("claude-code", "Claude Code: its state, the Claude API, its key",
			[]string{"~/.claude", "~/.claude.json", "~/.claude/.credentials.json", "~/.claude/projects", "~/.claude/history.jsonl", "~/.cache/claude", "~/.cache/claude-cli-nodejs"},
			"anthropic", []string{"claude.ai", "console.anthropic.com", "platform.claude.com", "statsig.anthropic.com"},
			[]string{"ANTHROPIC_*", "CLAUDE_*"}).makes("~/.claude", "~/.cache/claude-cli-nodejs").replaces("~/.claude.json"),
		agent("codex", "Codex CLI: its state, the OpenAI API, its key",
			[]string{"~/.codex", "~/.codex/auth.json", "~/.codex/sessions", "~/.codex/history.jsonl"},
			"openai", []string{"chatgpt.com", "auth.openai.com"}, []string{"OPENAI_*", "CODEX_*"}).makes("~/.codex"),
		agent("gemini-cli", "Gemini CLI: its state, the Gemini API, its key",
			[]string{"~/.gemini", "~/.gemini/oauth_creds.json", "~/.gemini/google_accounts.json"},
			"gemini", []string{"cloudcode-pa.googleapis.com", "oauth2.googleapis.com", "accounts.google.com", "play.googleapis.com"}, []string{"GEMINI_*", "GOOGLE_API_KEY", "GOOGLE_CLOUD_PROJECT"}).makes("~/.gemini"),
		agent("qwen-code", "Qwen Code: its state, its key", []string{"~/.qwen", "~/.qwen/oauth_creds.json"},
			"", []string{"dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com", "chat.qwen.ai"}, []string{"OPENAI_*", "DASHSCOPE_API_KEY", "QWEN_*"}).makes("~/.qwen"),
		// Of what aider keeps in a project only the histories: its cache of tags is loaded as
		// Python objects, outside too.
		agent("aider", "aider: its caches and histories, the APIs of language models, their keys",
			[]string{"~/.aider", "~/.aider.conf.yml", "~/.cache/aider", "./.aider.chat.history.md", "./.aider.input.history", "./.aider.llm.history"}, "llm", nil, modelKeys).makes("~/.aider"),
		agent("cursor", "Cursor's command line agent: its state, its service, its key",
			[]string{"~/.cursor", "~/.cursor/cli-config.json", "~/.config/cursor"},
			"", []string{"api2.cursor.sh", "*.cursor.sh", "cursor.com", "*.cursor.com"}, []string{"CURSOR_API_KEY"}).makes("~/.cursor", "~/.config/cursor"),
		agent("opencode", "opencode: its state, the APIs of language models, their keys",
			[]string{"~/.local/share/opencode", "~/.local/share/opencode/auth.json", "~/.local/state/opencode", "~/.cache/opencode"}, "llm", []string{"models.dev", "opencode.ai"}, modelKeys).
			makes("~/.local/share/opencode", "~/.local/state/opencode", "~/.cache/opencode", "~/.config/opencode"),
		agent("copilot", "GitHub Copilot CLI: its state, its service, its token",
			[]string{"~/.copilot", "~/.config/github-copilot"}, "github", []string{"api.githubcopilot.com", "*.githubcopilot.com"}, []string{"GH_TOKEN", "GITHUB_TOKEN", "COPILOT_*"}).makes("~/.copilot"),
		agent("goose", "goose: its state, the APIs of language models, their keys",
			[]string{"~/.config/goose", "~/.local/share/goose", "~/.local/state/goose"}, "llm", nil, append([]string{"GOOSE_*"}, modelKeys...)).
			makes("~/.config/goose", "~/.local/share/goose", "~/.local/state/goose"),
		agent("amp", "Amp: its state, its service, its key", []string{"~/.config/amp", "~/.local/share/amp", "~/.cache/amp"}, "", []string{"ampcode.com", "*.ampcode.com"}, []string{"AMP_API_KEY"}).
			makes("~/.config/amp", "~/.local/share/amp", "~/.cache/amp"),
		agent("crush", "Crush: its state, the APIs of language models, their keys", []string{"~/.local/share/crush", "~/.local/share/crush/crush.json", "~/.cache/crush", "./.crush"}, "llm", nil, modelKeys).
			makes("~/.local/share/crush", "~/.cache/crush", "~/.config/crush"),
	}
}

// modelKeys are the variables from which tools for several models take their keys.
var modelKeys = []string{"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "GEMINI_API_KEY", "GOOGLE_API_KEY", "OPENROUTER_API_KEY", "MISTRAL_API_KEY", "GROQ_API_KEY", "DEEPSEEK_API_KEY", "XAI_API_KEY"}

// tool makes the settings of a toolchain: its caches. Without a profile they are readable only,
// because programs outside run their contents.
func tool(name, description string, write []string) Profile {
	return Profile{Name: name, Description: description, Settings: Settings{Write: PathRules{Allow: write}}}
}

// with adds the caches that a program makes itself outside: they are made where PATH has it.
func (p Profile) with(program string, dirs ...string) Profile {
	for _, dir := range dirs {
		p.Settings.Write.Made = append(p.Settings.Write.Made, Made{Path: dir, Program: program})
	}
	return p
}

func tools() []Profile {
	return []Profile{
		tool("node", "node, npm, pnpm, yarn, bun, deno: their caches writable", []string{"~/.npm", "~/.cache/yarn", "~/.cache/pnpm", "~/.local/share/pnpm/store", "~/.local/state/pnpm", "~/.bun/install/cache", "~/.cache/deno", "~/.cache/node", "~/.cache/node-gyp", "~/.cache/ms-playwright", "~/.cache/Cypress", "~/.cache/puppeteer", "~/Library/Caches/Yarn", "~/Library/pnpm/store"}).
			with("npm", "~/.npm", "~/.cache/node-gyp").with("yarn", "~/.cache/yarn").with("pnpm", "~/.cache/pnpm", "~/.local/share/pnpm/store", "~/.local/state/pnpm").with("bun", "~/.bun/install/cache").with("deno", "~/.cache/deno").with("corepack", "~/.cache/node"),
		tool("python", "pip, uv, poetry, pre-commit: their caches writable", []string{"~/.cache/pip", "~/.cache/uv", "~/.local/share/uv", "~/.cache/pypoetry", "~/.cache/pre-commit", "~/.cache/huggingface", "~/.conda/pkgs", "~/Library/Caches/pip", "~/Library/Caches/pypoetry"}).
			with("pip", "~/.cache/pip").with("pip3", "~/.cache/pip").with("uv", "~/.cache/uv", "~/.local/share/uv").with("poetry", "~/.cache/pypoetry").with("pre-commit", "~/.cache/pre-commit"),
		tool("go", "go: its build and module caches writable", []string{"~/.cache/go-build", "~/go/pkg", "~/.cache/golangci-lint", "~/.cache/gopls", "~/.cache/staticcheck", "~/Library/Caches/go-build"}).
			with("go", "~/.cache/go-build", "~/go/pkg").with("golangci-lint", "~/.cache/golangci-lint").with("gopls", "~/.cache/gopls").with("staticcheck", "~/.cache/staticcheck"),
		tool("rust", "cargo: its registry and git caches writable", []string{"~/.cargo/registry", "~/.cargo/git", "~/.cargo/.package-cache", "~/.cargo/.package-cache-mutate", "~/.cargo/.global-cache", "~/.cache/sccache"}).
			with("cargo", "~/.cargo/registry", "~/.cargo/git").with("sccache", "~/.cache/sccache").replaces("~/.cargo/.package-cache", "~/.cargo/.global-cache"),
		tool("java", "maven and gradle: their repositories and caches writable", []string{"~/.m2/repository", "~/.gradle/caches", "~/.gradle/daemon", "~/.gradle/wrapper", "~/.gradle/native", "~/.gradle/notifications", "~/.gradle/workers", "~/.gradle/.tmp"}).
			with("mvn", "~/.m2/repository").with("java", "~/.gradle/caches", "~/.gradle/daemon", "~/.gradle/wrapper", "~/.gradle/native", "~/.gradle/notifications", "~/.gradle/workers", "~/.gradle/.tmp"),
		tool("ruby", "gem and bundler: their caches writable", []string{"~/.bundle/cache", "~/.gem/ruby", "~/.local/share/gem/ruby", "~/.cache/gem"}).
			with("bundle", "~/.bundle/cache").with("gem", "~/.cache/gem"),
		tool("dotnet", "dotnet: its package cache writable", []string{"~/.nuget/packages", "~/.local/share/NuGet", "~/.dotnet"}).
			with("dotnet", "~/.nuget/packages", "~/.local/share/NuGet"),
		tool("php", "composer: its cache writable", []string{"~/.cache/composer", "~/.composer/cache"}).with("composer", "~/.cache/composer"),
		tool("cpp", "ccache, conan, bazel, zig: their caches writable", []string{"~/.cache/ccache", "~/.ccache", "~/.conan2/p", "~/.conan/data", "~/.cache/bazel", "~/.cache/zig"}).
			with("ccache", "~/.cache/ccache").with("conan", "~/.conan2/p").with("bazel", "~/.cache/bazel").with("zig", "~/.cache/zig"),
		{Name: "git", Description: "git init, clone, config and worktrees below the working directory (hooks made there run outside too)",
			Settings: Settings{Write: PathRules{Unprotect: []string{".git", ".gitmodules"}}}},
		{Name: "github", Description: "GitHub: git over HTTPS and SSH, its API, raw files and releases", Settings: Settings{Network: NetworkRules{PolicyRef: "github"}}},
	}
}

func attitudes() []Profile {
	no, yes := false, true
	return []Profile{
		{Name: "readonly", Description: "nothing on this machine is written: changes go to a layer that is thrown away", Settings: Settings{Overlay: &yes}},
		{Name: "strict", Description: "only the system and the working directory are read, no variables but the usual, no ports",
			Settings: Settings{Read: PathRules{Default: "deny"}, Env: EnvRules{Clear: true}, Network: NetworkRules{Bind: &no}}},
	}
}

func findProfile(name string) (Profile, bool) {
	all := Profiles()
	i := slices.IndexFunc(all, func(p Profile) bool { return p.Name == name })
	if i < 0 {
		return Profile{}, false
	}
	return all[i], true
}

func profileNames() []string {
	var out []string
	for _, p := range Profiles() {
		out = append(out, p.Name)
	}
	return out
}
