package settings

import (
	"slices"
	"strings"
)

// A box gets the caller's environment without secrets. Three checks decide about a variable, in
// this order:
//
//   - Names of the lists below: credentials of clouds and registries, ways to daemons outside, orders to
//     the dynamic linker.
//   - Words in the name: [nameStrength] splits a name at every character that is no letter. DB_PASSWORD1,
//     MYTOKEN and SECRETKEY are secrets; MONKEY, AUTHOR, KEYMAP and TOKENIZERS_PARALLELISM are not.
//     A word that also has harmless meanings (KEY, AUTH, PASS) counts only if the value could be a secret.
//   - The value, whatever the name: [secretValue].
//
// keptNames skip the first two checks.

// secretNames are the lists. "*" stands for anything; case does not matter.
var secretNames = []struct {
	rule     string
	patterns []string
}{
	{"looks like a secret", []string{"*CONNECTION_STRING*", "*CONNSTR*", "*WEBHOOK_URL*", "*SESSION_ID", "*SEED_PHRASE*", "*_SID"}},
	{"cloud credentials", []string{"AWS_*", "AZURE_*", "ARM_*", "CLOUDSDK_*", "DIGITALOCEAN_*", "HCLOUD_*", "OCI_*", "ALICLOUD_*", "TENCENTCLOUD_*", "TF_VAR_*", "TFE_*", "PULUMI_*", "VAULT_*", "CONSUL_HTTP_*", "KUBECONFIG", "KUBE_*", "SOPS_*", "BW_*", "OP_SESSION*"}},
	{"registry and forge credentials", []string{"NPM_CONFIG_*AUTH*", "NODE_AUTH_*", "POETRY_HTTP_BASIC_*", "TWINE_*", "BUNDLE_*__*", "CI_JOB_JWT*", "ACTIONS_RUNTIME_*", "ACTIONS_ID_*", "GIT_ASKPASS", "SSH_ASKPASS", "SUDO_ASKPASS", "GIT_CREDENTIAL*", "GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_*", "GIT_CONFIG_VALUE_*", "GIT_CONFIG_PARAMETERS", "GIT_SSH_COMMAND"}},
	{"database credentials", []string{"PGPASS*", "PGSERVICE*", "MYSQL_PWD", "REDISCLI_AUTH"}},
	{"a way to a daemon outside", []string{"SSH_AUTH_SOCK", "SSH_AGENT_*", "GPG_AGENT_INFO", "DBUS_*", "XDG_RUNTIME_DIR", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CERT_PATH", "DOCKER_CONFIG", "CONTAINER_HOST", "CONTAINERD_*", "BUILDKIT_HOST", "PODMAN_*", "LIBVIRT_*", "XAUTHORITY", "ICEAUTHORITY", "SESSION_MANAGER", "WAYLAND_*", "DISPLAY", "PULSE_SERVER", "PULSE_COOKIE", "GNOME_KEYRING_*", "KRB5*", "TMUX", "TMUX_PANE", "STY", "NVIM", "VIM_SERVERNAME", "VSCODE_*", "KITTY_LISTEN_ON", "WEZTERM_UNIX_SOCKET", "ALACRITTY_SOCKET", "JOURNAL_STREAM", "NOTIFY_SOCKET", "WATCHDOG_*", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "CREDENTIALS_DIRECTORY", "CARREL_*", "SUDO_*"}},
	{"an order to the linker or an interpreter", []string{"LD_PRELOAD", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "GCONV_PATH", "BASH_ENV", "BASH_FUNC_*", "PROMPT_COMMAND", "PERL5DB", "PYTHONSTARTUP"}},
}

// keptNames are kept even if a list or a word above would strip them. Their values are checked
// anyway.
var keptNames = []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "LANG", "LANGUAGE", "LC_*", "TERM", "COLORTERM", "TERMINFO*", "TZ", "EDITOR", "VISUAL", "PAGER", "NO_COLOR", "FORCE_COLOR", "CI", "COLUMNS", "LINES", "SHLVL", "HOSTNAME", "TMPDIR", "TEMP", "TMP", "MANPATH", "GIT_PAGER"}

// strength says how likely the value is a secret, by the name.
type strength uint8

const (
	plainName  strength = iota
	weakName            // possibly, unless the value is harmless: KEY, AUTH, PASS
	strongName          // yes, unless the value means yes or no: PASSWORD, TOKEN
)

// nameStrength looks at the words of a name in upper case. describes reports that the last word is
// about a secret and not a secret itself: TOKEN_TYPE, KEY_FILE.
func nameStrength(name string) (s strength, describes bool) {
	last := ""
	for start := 0; start < len(name); {
		if !letter(name[start]) {
			start++
			continue
		}
		end := start
		for end < len(name) && letter(name[end]) {
			end++
		}
		last = name[start:end]
		s = max(s, wordStrength(last))
		start = end
	}
	return s, s != plainName && slices.Contains(describing, last)
}

// describing are last words of names that describe a secret.
var describing = []string{"FILE", "PATH", "DIR", "DIRECTORY", "NAME", "TYPE", "KIND", "ALGORITHM", "ALG", "LENGTH", "LEN", "SIZE", "COUNT", "LIMIT", "TTL", "TIMEOUT", "EXPIRY", "EXPIRES", "MAX", "MIN", "ENABLED", "DISABLED", "REQUIRED", "MODE", "METHOD", "HEADER", "FORMAT", "VERSION", "REGION", "URL", "URI", "ENDPOINT", "HOST", "PORT", "ISSUER", "AUDIENCE", "REALM", "DOMAIN", "PROVIDER", "BACKEND", "STORE", "MANAGER", "HELPER", "BUDGET"}

func letter(c byte) bool { return c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' }

// A word that contains one of secretWords is a secret. A word that ends with one of weakWords may
// be one.
var (
	secretWords = []string{"PASSWORD", "PASSWD", "PASSWRD", "PASSPHRASE", "PASSCODE", "SECRET", "CREDENTIAL", "APIKEY", "ACCESSKEY", "PRIVATEKEY", "PRIVKEY", "MNEMONIC", "BEARER", "JWT"}
	weakWords   = []string{"KEY", "KEYS", "AUTH", "PASS", "PWD", "DSN", "COOKIE", "COOKIES"}
	// weakAlone must be whole words; they are too short to be searched at the end of other words.
	weakAlone = []string{"PW", "PSW", "PAT", "OTP", "TOTP", "SALT", "PEPPER", "WEBHOOK", "WEBHOOKS"}
	// harmlessWords end like weakWords.
	harmlessWords = []string{"MONKEY", "DONKEY", "TURKEY", "HOCKEY", "WHISKEY", "JOCKEY", "LACKEY", "HOTKEY", "HOTKEYS", "MONKEYS", "COMPASS", "BYPASS", "OVERPASS", "UNDERPASS", "TRESPASS", "SURPASS", "ENCOMPASS"}
)

// wordStrength returns the strength of one word in upper case.
func wordStrength(w string) strength {
	for _, s := range secretWords {
		if strings.Contains(w, s) {
			return strongName
		}
	}
	if _, after, ok := strings.Cut(w, "TOKEN"); ok {
		switch {
		case after == "":
			return strongName
		case after == "S": // MAX_TOKENS=4096 is as common as GITHUB_TOKENS
			return weakName
		case !strings.HasPrefix(after, "IZ") && !strings.HasPrefix(after, "IS"): // tokenizers, tokenisation
			return strongName
		}
	}
	if w == "CRED" || strings.HasSuffix(w, "CREDS") {
		return strongName
	}
	if slices.Contains(harmlessWords, w) {
		return plainName
	}
	if slices.Contains(weakAlone, w) || slices.ContainsFunc(weakWords, func(s string) bool { return strings.HasSuffix(w, s) }) {
		return weakName
	}
	return plainName
}

// secretByName reports whether a variable is a secret by the words of its name. The name is in
// upper case.
func secretByName(name, value string) bool {
	s, describes := nameStrength(name)
	switch {
	case s == plainName || saysYesOrNo(value):
		return false
	case describes:
		return !describesOnly(value)
	}
	return s == strongName || !smallNumber(value)
}

// saysYesOrNo reports whether a value turns something on or off.
func saysYesOrNo(v string) bool {
	switch strings.ToLower(v) {
	case "true", "false", "yes", "no", "on", "off", "0", "1":
		return true
	}
	return false
}

// smallNumber reports whether a value is a number with few digits: a limit, a port, a time.
func smallNumber(v string) bool {
	if v == "" || len(v) > 6 {
		return false
	}
	for i := range len(v) {
		if v[i] < '0' || v[i] > '9' {
			return false
		}
	}
	return true
}

// describesOnly reports whether a value fits a describing name: a path, an address, a number, a
// word or two.
func describesOnly(v string) bool {
	if smallNumber(v) || strings.HasPrefix(v, "/") || strings.HasPrefix(v, "~") || strings.HasPrefix(v, "./") || strings.Contains(v, "://") {
		return true
	}
	if len(v) > 40 {
		return false
	}
	digits := 0
	for i := range len(v) {
		if v[i] >= '0' && v[i] <= '9' {
			digits++
		}
	}
	return digits <= 4
}

// matchName reports whether a variable's name matches a pattern.
func matchName(pattern, name string) bool {
	return matchStars(strings.ToUpper(pattern), strings.ToUpper(name))
}

// matchStars matches a pattern with "*" only. Its time does not grow exponentially.
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

// matchUpper is matchName for a pattern in upper case.
func matchUpper(pattern, name string) bool {
	for i := range len(name) {
		if c := name[i]; c >= 'a' && c <= 'z' {
			return matchStars(pattern, strings.ToUpper(name))
		}
	}
	return matchStars(pattern, name)
}
