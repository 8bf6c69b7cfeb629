package settings_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/settings"
)

// sha and the others are values that look random but are no secrets.
const (
	sha    = "da39a3ee5e6b4b0d3255bfef95601890afd80709"
	sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	anUUID = "3f2b8c1e-9d4a-4e6f-8b7a-1c2d3e4f5a6b"
)

// tail returns n characters, as a generator of keys makes them.
func tail(n int) string {
	const text = "a9Kd3Lw0Qz7Xp2Rv8Bt5Ym1Nc6Hj4Gf"
	return strings.Repeat(text, n/len(text)+1)[:n]
}

// secretVariables are variables that no box gets.
var secretVariables = map[string][]string{
	"names": {
		"TOKEN=x", "TOKEN1=x", "MY_TOKEN_2=x", "GITHUBTOKEN=x", "accessToken=x", "TOKENS=a,b", "SECRET=x", "SECRETKEY=x", "SECRET_KEY_BASE=x", "MYSECRET2=x", "DJANGO_SECRET=x",
		"PASS=hunter2", "DB_PASS=x", "DBPASS=x", "PASS1=x", "PASSWORD=x", "PASSWORD2=x", "MYSQL_ROOT_PASSWORD=x", "DBPASSWD=x", "SSH_PASSPHRASE=x", "PASSCODE=x", "SMTP_PWD=x", "db_pw=x",
		"KEY=x", "KEY1=x", "API_KEY=x", "APIKEY=x", "MYAPIKEY2=x", "SSHKEY=x", "DEPLOYKEY=x", "ENCRYPTION_KEYS=x,y", "KEY_BASE=x", "S3_ACCESSKEY=x", "PRIVATEKEY=x", "APP_KEY=base64:x",
		"AUTH=x", "HTTP_AUTH=x", "AUTH_HEADER_VALUE=x", "DOCKER_AUTH_CONFIG={}", "OAUTH2_CLIENT=x", "BASICAUTH=x", "CREDS=x", "MY_CREDENTIALS=x", "AWSCREDS=x", "SESSION_COOKIE=x", "JWT=x", "JWT_SIGNER=x",
		"SENTRY_DSN=x", "DSN=x", "GH_PAT=x", "SLACK_WEBHOOK=x", "DISCORD_WEBHOOK_URL=x", "WALLET_MNEMONIC=x", "BEARER=x", "PASSWORD_SALT=x", "MFA_OTP=x", "TWILIO_ACCOUNT_SID=x",
		"npm_config__authToken=x", "ORG_GRADLE_PROJECT_signingPassword=x", "SECRET_ID=x", "TOKEN_TYPE=" + tail(44), "KEY_NAME=" + tail(30),
	},
	"addresses": {
		"A=postgres://me:pw@example.com/x", "A=mysql://root:pw@localhost", "A=https://" + tail(20) + "@github.com/a/b", "A=https://ghp_" + tail(36) + "@github.com", "A=amqps://u:p@mq.example.com/%2f", "A=one https://u:p@example.com two",
		"A=root:pw@tcp(127.0.0.1:3306)/db", "A=me:pw@db.example.com:5432", "A=http://proxy:80,me:pw@proxy.example.com:3128", "A=user=me password=pw host=db", "A=Server=db;User Id=sa;Password=pw;", "A=DefaultEndpointsProtocol=https;AccountKey=" + tail(40) + "==",
		"A=https://example.com/x?access_token=" + tail(20), "A=https://example.com/x?a=b&sig=" + tail(20), "A=https://example.com/?api_key=" + tail(20), "A=--password=hunter2",
	},
	"hooks": {
		"A=https://hooks.slack.com/services/T000/B000/" + tail(24), "A=https://discord.com/api/webhooks/123456789/" + tail(60), "A=https://discordapp.com/api/webhooks/1/" + tail(60), "A=https://example.webhook.office.com/webhookb2/" + anUUID, "A=https://hooks.zapier.com/hooks/catch/1/abcdef/", "A=https://ci.example.com/hooks/" + tail(24), "A=https://ci.example.com/hook/" + anUUID,
	},
	"tokens": {
		"A=ghp_0123456789abcdefghij", "A=github_pat_" + tail(40), "A=glpat-" + tail(20), "A=npm_" + tail(36), "A=pypi-AgEIcHlwaS5vcmc" + tail(40), "A=sk-" + tail(48), "A=sk-0123456789abcdef0123456789abcdef", "A=sk-ant-api03-" + tail(60), "A=sk-proj-" + tail(60),
		"A=sk_live_" + tail(24), "A=sk_test_" + tail(24), "A=rk_test_" + tail(24), "A=whsec_" + tail(32), "A=SG." + tail(22) + "." + tail(43), "A=xoxb-123456789012-" + tail(24), "A=xapp-1-A0-" + tail(24), "A=AKIAIOSFODNN7EXAMPLE", "A=AIza" + tail(35), "A=GOCSPX-" + tail(24), "A=ya29." + tail(40),
		"A=hf_" + tail(34), "A=dop_v1_" + sha256, "A=shpat_" + sha[:32], "A=hvs." + tail(24), "A=tskey-auth-" + tail(30), "A=dckr_pat_" + tail(27), "A=AGE-SECRET-KEY-1QQPQXZ7RY9X8GF2TVDW0S3JN54KHCE6MUA7LQPZRY9X8GF2TVD", "A=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0." + tail(30), "A=gsk_" + tail(40), "A=dapi" + sha[:32], "A=figd_" + tail(30), "A=e2b_" + sha,
		"A=123456789:" + tail(35), "A=MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ." + tail(27), "A=Authorization: Bearer " + tail(20), "A=Bearer abcdef123456789", "A=Basic dXNlcjpwYXNzd29yZA==", "A=--token ghp_" + tail(36), `A={"token":"ghp_` + tail(36) + `"}`, "A=key-" + sha[:32],
	},
	"keys and JSON": {
		"A=-----BEGIN OPENSSH PRIVATE KEY-----\nx", "A=x -----BEGIN RSA PRIVATE KEY-----", `A={"auths":{"r.example.com":{"auth":"dTpw"}}}`, `A={"user":"me", "password": "pw"}`, `A=[{"client_secret":"x1"}]`,
	},
	"random": {"A=" + tail(19) + "/" + tail(20), "A=" + tail(40), "A=" + tail(43) + "=", "PATH=" + "ghp_" + tail(36)},
}

// plainVariables are variables that every box keeps.
var plainVariables = map[string][]string{
	"system": {
		"PATH=/usr/bin:/bin", "HOME_X=/x", "LANG=C.UTF-8", "COLORTERM=truecolor", "TERM_PROGRAM=vscode", "TERM=xterm-256color", "LS_COLORS=rs=0:di=01;34:ln=01;36:*.tar=01;31", "PS1=\\u@\\h:\\w\\$ ", "GPG_TTY=/dev/pts/3", "XDG_SESSION_TYPE=tty", "XDG_CONFIG_HOME=/x", "WINDOWID=123", "SHLVL=2", "LESSOPEN=| /usr/bin/lesspipe %s", "MAIL=/var/mail/x", "INVOCATION_ID=" + sha[:32], "EDITOR=vim", "BROWSER=firefox", "LOGNAME=x",
	},
	"words": {
		"KEYBOARD=us", "KEYBOARD_LAYOUT=us", "KEYMAP=vi", "XKB_KEYMAP=us", "KEYTIMEOUT=1", "MONKEY=x", "HOTKEY=ctrl-x", "AUTHOR=Ann", "AUTHORS=Ann, Bob", "GIT_AUTHOR_NAME=Ann", "GIT_AUTHOR_EMAIL=ann@example.com", "AUTHORITY=example.com", "PASSAGE_DIR=/x", "PASSENGER_APP_ENV=x", "COMPASS=n", "BYPASS=x", "TOKENIZERS_PARALLELISM=false", "TOKENIZER=bpe", "TOKENISER=bpe", "PATTERN=x", "PATCH=x", "SALTY=x", "OPTIONS=x", "WEBHOOKED=x", "DSNX=1", "JWTX_=0", "COOKIECUTTER_CONFIG=/x", "COMPAT=1",
	},
	"settings about secrets": {
		"MAX_TOKENS=4096", "CLAUDE_CODE_MAX_OUTPUT_TOKENS=32000", "USE_AUTH=true", "AUTH_ENABLED=false", "NO_PASSWORD=1", "PASSWORD_STORE_DIR=/home/x/.password-store", "KEY_FILE=/etc/x.pem", "TOKEN_FILE=/run/token", "TOKEN_TYPE=bearer", "AUTH_URL=https://auth.example.com/login", "AUTH_METHOD=basic", "SECRET_NAME=prod-db", "KEY_LENGTH=4096", "COOKIE_DOMAIN=.example.com", "PASS_MAX=3", "JWT_ALGORITHM=RS256", "TOKEN_TTL=24h", "KEYS_LIMIT=10", "CREDENTIAL_HELPER=store",
	},
	"ids": {
		"GIT_SHA=" + sha, "COMMIT=" + sha, "GITHUB_SHA=" + sha, "CI_COMMIT_SHA=" + sha, "IMAGE=alpine@sha256:" + sha256, "IMAGE2=registry.example.com:5000/a/b:1.2@sha256:" + sha256, "IMAGE3=alpine:3.19@sha256:" + sha256, "RUN_ID=" + anUUID, "BUILD=" + strings.ReplaceAll(anUUID, "-", ""), "INTEGRITY=sha512-" + tail(86) + "==", "DIGEST=sha256:" + sha256, "ETAG=" + sha[:32], "NIX_X=/nix/store/" + sha[:32] + "-glibc-2.39/lib",
	},
	"addresses": {
		"A=https://example.com/x", "A=postgres://example.com/x", "A=http://proxy.example.com:3128", "A=http://[::1]:80/", "A=git@github.com:me/x.git", "A=ssh://git@github.com/me/x", "A=mailto:me@example.com", "A=npm:lodash@4.17.21", "A=me@example.com", "A=localhost:8080", "A=sqlite:///x.db", "A=https://example.com/webhooks", "A=https://example.com/hooks/list", "A=https://example.com/?page=2&key=name", "A=/usr/share/x:/usr/local/share/x", "A=file:///home/x/y", "A=unix:///run/x.sock",
	},
	"other text": {
		"A=", "A=1", "A=true", "A=sk-learn", "A=sk-learn-contrib-package", "A=npm_modules_directory", "A=key-value-store-2", "A=-O2 -g -fstack-protector-strong", "A=-ldflags=-X main.version=1.2.3", "A=com.example.application.ServerConfiguration", "A=ThisIsAVeryLongCamelCaseIdentifierName2024", "A=/home/x/projects/Some/Very/Long/Path2/With3/Numbers4", "A=a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,r,s,t,u,v,w,x", "A=node:20.11.1-bookworm-slim", "A=v1.2.3-rc.4+build.5", "A=2026-11-25T20:12:20+00:00", "A=--max-old-space-size=4096", `A={"name":"x","tokens":5}`, "A=secret_service_directory_name_2", "A=basic auth is off", "A=hf_transfer", "npm_config_user_agent=npm/10.2.4 node/v20.11.1 linux x64 workspaces/false", "npm_package_json=/x/package.json", "A=GNOME Terminal 3.52.2 using VTE 0.76.0 +BIDI", "PYTHONHASHSEED=0", "A=America/Argentina/ComodRivadavia",
		"A=w0t0p0:" + strings.ToUpper(anUUID), "DEBUGINFOD_URLS=https://debuginfod.ubuntu.com ", "A=password required: no", "A=user:group",
	},
}

// TestSecretVariablesByShape checks both lists.
func TestSecretVariablesByShape(t *testing.T) {
	p := newPlace(t)
	for _, c := range []struct {
		list map[string][]string
		keep bool
	}{{secretVariables, false}, {plainVariables, true}} {
		for class, list := range c.list {
			for i, e := range list {
				t.Run(fmt.Sprint(class, " ", i), func(t *testing.T) {
					b := p.resolve(func(r *settings.Request) { r.Env = []string{e} })
					if len(b.Env) != 1 || b.Env[0].Kept != c.keep {
						t.Errorf("%s: %+v", e, b.Env)
					}
				})
			}
		}
	}
}

// TestKnownSecret checks texts that go out of the daemon: what has the form of a secret is known, and
// what is only random stays, since an ID looks like it.
func TestKnownSecret(t *testing.T) {
	check := func(entry string, secret bool) {
		_, value, _ := strings.Cut(entry, "=")
		if why := settings.KnownSecret(value); (why != "") != secret {
			t.Errorf("%s: %q", value, why)
		}
	}
	for _, class := range []string{"addresses", "hooks", "tokens", "keys and JSON"} {
		for _, e := range secretVariables[class] {
			check(e, true)
		}
	}
	for _, list := range plainVariables {
		for _, e := range list {
			check(e, false)
		}
	}
	for _, text := range []string{tail(40), tail(43) + "=", "", "short"} {
		check("="+text, false)
	}
}

// BenchmarkEnvironment decides about the variables of both lists.
func BenchmarkEnvironment(b *testing.B) {
	var all []string
	for _, lists := range []map[string][]string{secretVariables, plainVariables} {
		for _, list := range lists {
			all = append(all, list...)
		}
	}
	for b.Loop() {
		for _, e := range all {
			name, value, _ := strings.Cut(e, "=")
			settings.SecretEnv(name, value)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(all)), "ns/variable")
}
