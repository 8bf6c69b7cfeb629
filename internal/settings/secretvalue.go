package settings

import (
	"slices"
	"strings"
)

// secretValue returns the reason why a value is a secret, whatever its name, or "" if it does not
// look like one. Secrets are: a private key; an address with a password or a token; a token with
// its issuer's mark for scanners; text that is too random for anything else. Hashes, UUIDs, paths
// and versions stay: programs need them, and they open nothing.
func secretValue(v string) string {
	if reason := KnownSecret(v); reason != "" || len(v) < minSecret {
		return reason
	}
	if random(v) {
		return "is random enough to be a key"
	}
	return ""
}

// KnownSecret returns the reason why a text holds a secret, or "" if it does not look like one. It
// goes by forms that only secrets have. Text that is only random may be an ID.
func KnownSecret(v string) string {
	if len(v) < minSecret {
		return ""
	}
	if strings.Contains(v, "PRIVATE KEY-----") {
		return "holds a private key"
	}
	if reason := secretAddress(v); reason != "" {
		return reason
	}
	if namedPassword(v) {
		return "holds a password"
	}
	if jsonSecret(v) {
		return "holds a password"
	}
	if authorization(v) {
		return "holds a token"
	}
	for rest := v; rest != ""; {
		piece := rest
		if end := strings.IndexFunc(rest, func(r rune) bool { return !tokenByte(r) }); end >= 0 {
			piece, rest = rest[:end], rest[end+1:]
		} else {
			rest = ""
		}
		if marked(piece) {
			return "holds a token"
		}
	}
	if botToken(v) {
		return "holds a token"
	}
	return ""
}

// minSecret is the length of the shortest value that is checked: "a:b@c.de".
const minSecret = 8

// tokenByte reports whether a character may be part of a token.
func tokenByte(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' || r == '.'
}

// mark is the beginning of an issuer's tokens, and the least length of the rest.
type mark struct {
	prefix string
	rest   int
}

// marks are the issuers' documented marks. The rest must have a digit and a letter, and must look
// random if the mark is short enough to begin a word.
var marks = []mark{
	// forges and registries
	{"ghp_", 12}, {"gho_", 12}, {"ghu_", 12}, {"ghs_", 12}, {"ghr_", 12}, {"github_pat_", 12}, {"glpat-", 12}, {"gldt-", 12}, {"glrt-", 12}, {"glcbt-", 12}, {"glptt-", 12}, {"glft-", 12}, {"glimt-", 12}, {"glagent-", 12}, {"glsoat-", 12},
	{"npm_", 20}, {"pypi-", 16}, {"rubygems_", 20}, {"dckr_pat_", 12}, {"dckr_oat_", 12}, {"ATATT3", 20}, {"ATBB", 20}, {"ATCTT3", 20}, {"CCIPAT_", 12}, {"bkua_", 20},
	// language models
	{"sk-ant-", 12}, {"sk-proj-", 12}, {"sk-or-", 12}, {"sk-svcacct-", 12}, {"sk-", 12}, {"hf_", 16}, {"gsk_", 16}, {"xai-", 20}, {"pplx-", 16}, {"tvly-", 12}, {"r8_", 20}, {"e2b_", 20}, {"csk-", 20}, {"fw_", 20}, {"nvapi-", 20},
	// payment
	{"sk_live_", 8}, {"sk_test_", 8}, {"rk_live_", 8}, {"rk_test_", 8}, {"whsec_", 12}, {"sq0atp-", 12}, {"sq0csp-", 12}, {"shippo_live_", 12}, {"FLWSECK", 12},
	// clouds and hosts
	{"AIza", 20}, {"GOCSPX-", 12}, {"ya29.", 12}, {"dop_v1_", 12}, {"doo_v1_", 12}, {"dor_v1_", 12}, {"dapi", 32}, {"hvs.", 12}, {"hvb.", 12}, {"hvr.", 12}, {"tskey-", 12}, {"pscale_tkn_", 12}, {"pscale_pw_", 12}, {"sbp_", 20}, {"nfp_", 20},
	{"fm1_", 20}, {"fm2_", 20}, {"fo1_", 20}, {"dp.pt.", 12}, {"dp.st.", 12}, {"dp.sa.", 12}, {"ops_eyJ", 12}, {"rnd_", 20}, {"CFPAT-", 12},
	// chat and mail
	{"xoxb-", 12}, {"xoxp-", 12}, {"xoxa-", 12}, {"xoxr-", 12}, {"xoxs-", 12}, {"xoxe-", 12}, {"xoxc-", 12}, {"xoxd-", 12}, {"xapp-", 12}, {"SG.", 20}, {"key-", 32},
	// the rest
	{"shpat_", 12}, {"shpss_", 12}, {"shpca_", 12}, {"shppa_", 12}, {"lin_api_", 12}, {"ntn_", 20}, {"secret_", 30}, {"figd_", 12}, {"PMAK-", 12}, {"NRAK-", 12}, {"sntrys_", 12}, {"sntryu_", 12}, {"glsa_", 12}, {"glc_", 20}, {"dt0c01.", 12}, {"AGE-SECRET-KEY-", 12}, {"AGE-PLUGIN-", 12}, {"eyJhbGciOi", 12}, {"eyJ0eXAiOi", 12}, {"phc_", 20}, {"phx_", 20},
}

// wordMarks are marks that also begin ordinary names (sk-learn-contrib). The rest must be random.
var wordMarks = []string{"sk-", "npm_", "key-", "secret_", "hf_", "dapi", "xai-", "fw_", "rnd_", "r8_", "ATBB"}

// marked reports whether a piece of text begins like a token.
func marked(piece string) bool {
	if len(piece) < minSecret || !strings.ContainsAny(piece, "0123456789") && piece[0] != 'A' {
		return false
	}
	if len(piece) == 20 && (piece[:4] == "AKIA" || piece[:4] == "ASIA") && piece == strings.ToUpper(piece) {
		return true
	}
	for _, m := range marks {
		if m.prefix[0] != piece[0] {
			continue
		}
		rest, ok := strings.CutPrefix(piece, m.prefix)
		if !ok || len(rest) < m.rest {
			continue
		}
		lower, upper, digits, longest := classes(rest)
		switch {
		case digits == 0 || lower+upper == 0 && digits < 12:
			continue
		case slices.Contains(wordMarks, m.prefix) && (longest < 12 || digits < 2):
			continue
		}
		return true
	}
	return false
}

// classes counts the kinds of characters in a text. longest is the length of the longest run of
// letters and digits that contains a digit.
func classes(s string) (lower, upper, digits, longest int) {
	run, withDigit := 0, false
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z':
			lower++
		case c >= 'A' && c <= 'Z':
			upper++
		case c >= '0' && c <= '9':
			digits++
			withDigit = true
		default:
			run, withDigit = 0, false
			continue
		}
		if run++; withDigit {
			longest = max(longest, run)
		}
	}
	return lower, upper, digits, longest
}

// secretAddress searches for addresses with a password or token, and for addresses of hooks, which
// everyone who knows them may call.
func secretAddress(v string) string {
	for rest := v; ; {
		i := strings.Index(rest, "://")
		if i < 0 {
			break
		}
		rest = rest[i+3:]
		address := rest
		if end := strings.IndexAny(rest, " \t\n\"'`<>"); end >= 0 {
			address = rest[:end]
		}
		host, path, _ := strings.Cut(address, "/")
		if at := strings.LastIndexByte(host, '@'); at >= 0 {
			user, _, colon := strings.Cut(host[:at], ":")
			if colon || marked(user) || mixed(user, 16) {
				return "holds a URL with a password"
			}
			host = host[at+1:]
		}
		if hook(host, path) {
			return "holds the URL of a hook"
		}
		if secretQuery(path) {
			return "holds a URL with a token"
		}
	}
	if strings.IndexByte(v, '@') < 0 {
		return ""
	}
	for piece := range strings.FieldsFuncSeq(v, func(r rune) bool { return strings.ContainsRune(" \t\n\"'`,;=", r) }) {
		if userAtHost(piece) {
			return "holds an address with a password"
		}
	}
	return ""
}

// userAtHost reports whether a text is USER:PASSWORD@HOST, as in the data source names of databases
// and in proxies without a scheme. Images (name:tag@sha256:…) and packages (npm:name@1.2) look
// similar and do not count.
func userAtHost(s string) bool {
	if strings.Contains(s, "://") {
		return false // was looked at
	}
	at := strings.LastIndexByte(s, '@')
	user, password, ok := strings.Cut(s[:max(at, 0)], ":")
	if at < 0 || !ok || user == "" || password == "" || strings.Contains(user, "/") {
		return false
	}
	switch user {
	case "mailto", "sip", "sips", "xmpp", "acct", "npm", "jsr", "workspace", "github", "gitlab", "pypi", "pkg", "docker", "oci", "ssh", "git":
		return false
	}
	host := s[at+1:]
	for _, network := range []string{"tcp(", "tcp6(", "unix(", "udp(", "/"} {
		if strings.HasPrefix(host, network) {
			return true
		}
	}
	host, _, _ = strings.Cut(host, "/")
	host, _, _ = strings.Cut(host, ":")
	dot := strings.LastIndexByte(host, '.')
	return host == "localhost" || dot > 0 && dot < len(host)-1 && (letter(host[dot+1]) || strings.Count(host, ".") == 3)
}

// namedPassword reports whether a value is a list with a password among its keys, as for databases
// and storage: "Server=x;Password=y", "host=x password=y".
func namedPassword(v string) bool {
	if !strings.Contains(v, "=") {
		return false
	}
	for piece := range strings.FieldsFuncSeq(v, func(r rune) bool { return strings.ContainsRune("; \t\n\"'&?,", r) }) {
		key, value, ok := strings.Cut(piece, "=")
		if !ok || value == "" || saysYesOrNo(value) {
			continue
		}
		switch strings.ToLower(strings.TrimLeft(key, "-")) {
		case "password", "passwd", "pwd", "accountkey", "sharedaccesskey", "sharedaccesssignature", "apikey", "api_key", "api-key", "access_token", "auth_token", "_authtoken", "client_secret", "secret":
			return !strings.HasPrefix(value, "$") && !strings.HasPrefix(value, "%") // a reference to another variable
		}
	}
	return false
}

// jsonSecret reports whether a value is JSON with a text under a key that is named like a secret.
func jsonSecret(v string) bool {
	if v[0] != '{' && v[0] != '[' {
		return false
	}
	for rest := v; ; {
		_, after, ok := strings.Cut(rest, "\"")
		if !ok {
			return false
		}
		key, tail, ok := strings.Cut(after, "\"")
		if !ok {
			return false
		}
		rest = tail
		tail = strings.TrimLeft(tail, " \t\n")
		if !strings.HasPrefix(tail, ":") {
			continue
		}
		tail = strings.TrimLeft(tail[1:], " \t\n")
		value, isText := strings.CutPrefix(tail, "\"")
		if !isText {
			continue
		}
		value, rest, _ = strings.Cut(value, "\"")
		if s, describes := nameStrength(strings.ToUpper(key)); (s == strongName || key == "auth" || key == "key") && !describes && value != "" && !saysYesOrNo(value) {
			return true
		}
	}
}

// authorization reports whether a value is or contains the authorization of a request.
func authorization(v string) bool {
	if strings.IndexByte(v, ' ') < 0 {
		return false
	}
	low := strings.ToLower(v)
	for _, scheme := range []string{"bearer ", "basic ", "token "} {
		i := strings.Index(low, scheme)
		if i < 0 || i > 0 && low[i-1] != ' ' && low[i-1] != ':' && low[i-1] != '"' && low[i-1] != '\'' {
			continue
		}
		what, _, _ := strings.Cut(strings.TrimLeft(v[i+len(scheme):], " "), " ")
		if lower, upper, digits, _ := classes(what); len(what) >= 12 && lower+upper > 0 && (digits > 0 || lower*upper > 0) {
			return true
		}
	}
	return false
}

// hook reports whether an address is a secret hook: a service lets everyone who knows it call it.
func hook(host, path string) bool {
	host, _, _ = strings.Cut(host, ":")
	switch {
	case len(path) < 8:
		return false
	case host == "hooks.slack.com", host == "hooks.zapier.com", host == "maker.ifttt.com", strings.HasSuffix(host, ".webhook.office.com"):
		return true
	case strings.HasPrefix(path, "api/webhooks/"), strings.HasPrefix(host, "outlook.office") && strings.HasPrefix(path, "webhook"):
		return true
	case !strings.Contains(host, "hook") && !strings.Contains(path, "hook"):
		return false
	}
	for part := range strings.FieldsFuncSeq(path, func(r rune) bool { return strings.ContainsRune("/?&=", r) }) {
		if mixed(part, 16) || uuid(part) {
			return true
		}
	}
	return false
}

// secretQuery reports whether the query of an address contains a token.
func secretQuery(path string) bool {
	_, query, ok := strings.Cut(path, "?")
	if !ok {
		return false
	}
	for pair := range strings.SplitSeq(query, "&") {
		key, value, _ := strings.Cut(pair, "=")
		if len(value) < 8 {
			continue
		}
		if s, describes := nameStrength(strings.ToUpper(key)); s != plainName && !describes || key == "sig" || key == "signature" || key == "X-Amz-Signature" {
			if !saysYesOrNo(value) && !smallNumber(value) {
				return true
			}
		}
	}
	return false
}

// botToken reports whether a value is NUMBER:RANDOM, as for chat bots, or three random parts with
// dots.
func botToken(v string) bool {
	number, rest, ok := strings.Cut(v, ":")
	if ok && len(number) >= 8 && len(number) <= 10 && strings.Trim(number, "0123456789") == "" && len(rest) >= 30 && strings.IndexFunc(rest, func(r rune) bool { return !tokenByte(r) }) < 0 {
		return true
	}
	parts := strings.Split(v, ".")
	return len(parts) == 3 && len(parts[0]) >= 22 && len(parts[0]) <= 28 && len(parts[1]) == 6 && len(parts[2]) >= 27 && mixed(parts[0]+parts[2], 40) &&
		strings.IndexFunc(v, func(r rune) bool { return !tokenByte(r) }) < 0
}

// mixed reports whether a text of letters, digits and "-_" has at least this length and looks
// random: both cases or digits, changing often.
func mixed(s string, least int) bool {
	if len(s) < least || strings.IndexFunc(s, func(r rune) bool { return r == '.' || !tokenByte(r) }) >= 0 {
		return false
	}
	_, _, digits, _ := classes(s)
	return digits >= 2 && changes(s)*5 >= len(s)*2
}

// changes counts how often the kind of character changes from one to the next. In random text it
// changes after about three of five characters, in words and names after one of five.
func changes(s string) int {
	kind := func(c byte) int {
		switch {
		case c >= 'a' && c <= 'z':
			return 0
		case c >= 'A' && c <= 'Z':
			return 1
		case c >= '0' && c <= '9':
			return 2
		}
		return 3
	}
	n := 0
	for i := 1; i < len(s); i++ {
		if kind(s[i]) != kind(s[i-1]) {
			n++
		}
	}
	return n
}

// random reports whether a whole value is one text that is too random for a name, a path or a
// version: 32 or more characters of the base64 alphabets, with both cases and digits that change
// often. Text in one case does not count, because hashes, UUIDs and IDs look like that.
func random(v string) bool {
	if len(v) < 32 || len(v) > 512 || v[0] == '/' || v[0] == '.' || v[0] == '~' {
		return false
	}
	body := strings.TrimRight(v, "=")
	slashes := 0
	for i := range len(body) {
		switch c := body[i]; {
		case c == '/':
			slashes++
		case c == '.' || !tokenByte(rune(c)) && c != '+':
			return false
		}
	}
	if strings.HasPrefix(v, "sha1-") || strings.HasPrefix(v, "sha256-") || strings.HasPrefix(v, "sha384-") || strings.HasPrefix(v, "sha512-") {
		return false // a package manager's checksum of a download
	}
	lower, upper, digits, _ := classes(body)
	return lower >= 4 && upper >= 4 && digits >= 3 && slashes*12 <= len(body) && changes(body)*9 >= len(body)*4
}

// uuid reports whether a text is a UUID.
func uuid(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return false
			}
		case c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F':
		default:
			return false
		}
	}
	return true
}
