package settings

import "strings"

// secretNames are variables that a box does not get unless somebody passes them: what is named like
// a secret, ways to reach daemons, and orders to the dynamic linker and interpreters, which would run code of the caller's choice before
// the command. "*" stands for anything; case does not matter.
var secretNames = []struct {
	rule     string
	patterns []string
}{
	{"looks like a secret", []string{
		"*TOKEN", "*TOKENS", "*_TOKEN_*", "*SECRET", "*SECRETS", "*_SECRET_*", "SECRET_*", "*PASSWORD*", "*PASSWD*", "*PASSPHRASE*", "*_PASS", "*_PWD", "*API_KEY*", "*APIKEY*", "*_KEY", "*_KEYS", "*ACCESS_KEY*", "*PRIVATE_KEY*", "*SIGNING_KEY*", "*ENCRYPTION_KEY*", "*CREDENTIAL*", "*_CREDS", "*_AUTH", "*_AUTH_*", "*COOKIE*", "*SESSION_ID", "*_DSN", "*CONNECTION_STRING*", "*CONNSTR*", "*WEBHOOK_URL*", "*_PAT", "*BEARER*", "*JWT*", "*MNEMONIC*", "*SEED_PHRASE*",
	}},
	{"cloud credentials", []string{"AWS_*", "AZURE_*", "ARM_*", "CLOUDSDK_*", "DIGITALOCEAN_*", "HCLOUD_*", "OCI_*", "ALICLOUD_*", "TENCENTCLOUD_*", "TF_VAR_*", "TFE_*", "PULUMI_*", "VAULT_*", "CONSUL_HTTP_*", "KUBECONFIG", "KUBE_*", "SOPS_*", "BW_*", "OP_SESSION*"}},
	{"registry and forge credentials", []string{"NPM_CONFIG_*AUTH*", "NODE_AUTH_*", "POETRY_HTTP_BASIC_*", "TWINE_*", "BUNDLE_*__*", "CI_JOB_JWT*", "ACTIONS_RUNTIME_*", "ACTIONS_ID_*", "GIT_ASKPASS", "SSH_ASKPASS", "SUDO_ASKPASS", "GIT_CREDENTIAL*", "GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_*", "GIT_CONFIG_VALUE_*", "GIT_CONFIG_PARAMETERS", "GIT_SSH_COMMAND"}},
	{"database credentials", []string{"PGPASS*", "PGSERVICE*", "MYSQL_PWD", "REDISCLI_AUTH"}},
	{"a way to a daemon outside", []string{"SSH_AUTH_SOCK", "SSH_AGENT_*", "GPG_AGENT_INFO", "DBUS_*", "XDG_RUNTIME_DIR", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CERT_PATH", "DOCKER_CONFIG", "CONTAINER_HOST", "CONTAINERD_*", "BUILDKIT_HOST", "PODMAN_*", "LIBVIRT_*", "XAUTHORITY", "ICEAUTHORITY", "SESSION_MANAGER", "WAYLAND_*", "DISPLAY", "PULSE_SERVER", "PULSE_COOKIE", "GNOME_KEYRING_*", "KRB5*", "TMUX", "TMUX_PANE", "STY", "NVIM", "VIM_SERVERNAME", "VSCODE_*", "KITTY_LISTEN_ON", "WEZTERM_UNIX_SOCKET", "ALACRITTY_SOCKET", "JOURNAL_STREAM", "NOTIFY_SOCKET", "WATCHDOG_*", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "CREDENTIALS_DIRECTORY", "CARREL_*", "SUDO_*"}},
	{"an order to the linker or an interpreter", []string{"LD_PRELOAD", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "GCONV_PATH", "BASH_ENV", "BASH_FUNC_*", "PROMPT_COMMAND", "PERL5DB", "PYTHONSTARTUP"}},
}

// keptNames are kept although a pattern above would strip them.
var keptNames = []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "LANG", "LANGUAGE", "LC_*", "TERM", "COLORTERM", "TERMINFO*", "TZ", "EDITOR", "VISUAL", "PAGER", "NO_COLOR", "FORCE_COLOR", "CI", "COLUMNS", "LINES", "SHLVL", "HOSTNAME", "TMPDIR", "TEMP", "TMP", "MANPATH", "GIT_PAGER"}

// matchName reports whether a variable's name matches a pattern.
func matchName(pattern, name string) bool {
	return matchStars(strings.ToUpper(pattern), strings.ToUpper(name))
}

// matchStars matches "*" alone, in time that does not explode.
func matchStars(p, s string) bool {
	star, mark, i, j := -1, 0, 0, 0
	for j < len(s) {
		switch {
		case i < len(p) && p[i] == '*':
			star, mark = i, j
			i++
		case i < len(p) && p[i] == s[j]:
			i, j = i+1, j+1
		case star >= 0:
			mark++
			i, j = star+1, mark
		default:
			return false
		}
	}
	for i < len(p) && p[i] == '*' {
		i++
	}
	return i == len(p)
}

// secretValue says why a value is a secret whatever its name, "" if it does not look like one: URLs with a password in them, private keys, and the
// prefixes that issuers give their tokens so that scanners find them.
func secretValue(v string) string {
	if rest := v; len(rest) > 0 {
		for {
			i := strings.Index(rest, "://")
			if i < 0 {
				break
			}
			rest = rest[i+3:]
			host, _, _ := strings.Cut(rest, "/")
			if at := strings.LastIndexByte(host, '@'); at >= 0 && strings.Contains(host[:at], ":") {
				return "holds a URL with a password"
			}
		}
	}
	if strings.Contains(v, "PRIVATE KEY-----") {
		return "holds a private key"
	}
	for _, p := range tokenPrefixes {
		if len(v) >= len(p)+12 && strings.HasPrefix(v, p) && !strings.ContainsAny(v, " /") {
			return "holds a token"
		}
	}
	return ""
}

var tokenPrefixes = []string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "npm_", "pypi-", "sk-", "sk_live_", "rk_live_", "xoxb-", "xoxp-", "xoxa-", "xapp-", "AKIA", "ASIA", "AIza", "hf_", "dop_v1_", "shpat_", "eyJhbGciOi"}

// matchUpper is matchName for a pattern that is in upper case.
func matchUpper(pattern, name string) bool {
	for i := range len(name) {
		if c := name[i]; c >= 'a' && c <= 'z' {
			return matchStars(pattern, strings.ToUpper(name))
		}
	}
	return matchStars(pattern, name)
}
