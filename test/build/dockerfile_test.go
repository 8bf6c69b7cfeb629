package build

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// projectFile is a Dockerfile as people write it: two stages, packages of npm and pip, a cache, a
// secret, and heredocs. Its packages are made by the test, since there is no internet.
const projectFile = `# syntax=docker/dockerfile:1
ARG BASE=base
FROM template://${BASE} AS deps
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
USER root
WORKDIR /deps
COPY packages/ packages/
RUN --mount=type=cache,target=/cache,sharing=locked \
    date +%N >> /cache/runs; wc -l < /cache/runs > runs
RUN --mount=type=secret,id=token,env=TOKEN,required --mount=type=secret,id=token <<EOF
test "$TOKEN" = "$(cat /run/secrets/token)"
sha256sum /run/secrets/token | cut -c1-8 > seen
EOF

FROM template://${BASE}
LABEL org.example.kind="test"
ARG VERSION
ENV APP_VERSION=${VERSION:-none} APP_HOME=/srv/app
USER root
WORKDIR $APP_HOME
COPY package.json ./
COPY --from=deps /deps/packages /opt/packages
RUN npm install --offline --install-links --no-audit --no-fund
RUN pip3 install --no-index --break-system-packages --target /opt/py /opt/packages/wordpy
COPY --chown=user:user --chmod=u=rwX,go=rX src/ src/
COPY --from=deps /deps/runs /deps/seen ./
COPY <<run.sh <<'plain.txt' ./
#!/bin/sh
echo $VERSION
run.sh
$VERSION
plain.txt
ADD data.tar.gz /data/
RUN --network=none <<EOF
#!/usr/bin/env python3
import socket
try:
    socket.create_connection(("203.0.113.1", 80), 1)
    raise SystemExit("there is a network")
except OSError:
    open("offline", "w").write("yes")
EOF
USER user
CMD ["bash"]
`

// projectContext are the files beside projectFile.
func projectContext(t *testing.T) []byte {
	return archive(t,
		file{name: "package.json",
			content: `{"name":"app","version":"1.0.0","dependencies":{"wordjs":"file:/opt/packages/wordjs"}}`},
		file{name: "packages/wordjs/package.json",
			content: `{"name":"wordjs","version":"3.2.1","license":"MIT","main":"index.js"}`},
		file{name: "packages/wordjs/index.js", content: "module.exports = 'from npm'\n"},
		file{name: "packages/wordpy/pyproject.toml",
			content: "[build-system]\nrequires = []\nbuild-backend = \"backend\"\nbackend-path = [\".\"]\n"},
		file{name: "packages/wordpy/backend.py", content: backend},
		file{name: "src/main.js", content: "console.log(require('wordjs'))\n", mode: 0o600},
		file{name: "data.tar.gz", content: string(packed(t,
			archive(t, file{name: "inner.txt", content: "unpacked"})))},
	)
}

// backend makes a wheel without any other package.
const backend = `import os, zipfile

def build_wheel(directory, config_settings=None, metadata_directory=None):
    name = "wordpy-1.5-py3-none-any.whl"
    info = "wordpy-1.5.dist-info/"
    with zipfile.ZipFile(os.path.join(directory, name), "w") as z:
        z.writestr("wordpy.py", "word = 'from pip'\n")
        z.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: wordpy\nVersion: 1.5\n")
        z.writestr(info + "WHEEL",
	"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr(info + "RECORD", "wordpy.py,,\n" +
	"".join(info + n + ",,\n" for n in ("METADATA", "WHEEL", "RECORD")))
    return name
`

// packed compresses a stream.
func packed(t *testing.T, raw []byte) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "gzip", "-cn")
	cmd.Stdin = bytes.NewReader(raw)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// smallProject is projectFile without the steps that need npm and pip, for a small base.
func smallProject() string {
	var out strings.Builder
	for _, line := range strings.SplitAfter(projectFile, "\n") {
		if !strings.HasPrefix(line, "RUN npm") && !strings.HasPrefix(line, "RUN pip3") {
			out.WriteString(line)
		}
	}
	text := out.String()
	from := strings.Index(text, "RUN --network=none")
	to := strings.Index(text, "USER user\nCMD")
	return text[:from] + "RUN --network=none echo -n yes > offline\n" + text[to:]
}

// TestDockerfile builds projectFile, looks at a sandbox of it, and builds it again.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"npm", "pip3", "gzip"} {
		_, err := exec.LookPath(program)
		testenv.Need(t, program, err)
	}
	oneTier(t, carrel.NS, func(t *testing.T, b *bench) {
		base, text, words := "base", projectFile, "from npm\nfrom pip\n"
		if testing.Short() {
			base, text, words = small, smallProject(), ""
		}
		spec := func() carrel.BuildSpec {
			return carrel.BuildSpec{Name: "app", Tags: []string{"default", "v1"}, Dockerfile: text,
				Context: bytes.NewReader(projectContext(t)),
				Args:    map[string]string{"VERSION": "7", "BASE": base},
				Secrets: map[string]string{"token": "s3cret-value-of-the-test"}}
		}
		first := b.ready(spec())
		programs := `node src/main.js; PYTHONPATH=/opt/py python3 -c 'import wordpy; print(wordpy.word)'`
		if testing.Short() {
			programs = ""
		}
		got := b.run("app", "id -un; pwd; echo $APP_VERSION; "+programs+`
cat runs seen offline plain.txt run.sh /data/inner.txt; stat -c '%U %a' src/main.js; ls -A /run/secrets /cache 2>&1 | head -3`)
		for _, want := range []string{"user\n/srv/app\n7\n" + words + "1\n",
			"yes$VERSION\n#!/bin/sh\necho 7\nunpackeduser 644\n"} {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in\n%s", want, got)
			}
		}
		again := b.ready(spec())
		for _, s := range again.Steps {
			if !s.Cached && s.Key != "" && changesFiles(s.Text) {
				t.Errorf("line %d ran again: %s", s.Line, s.Text)
			}
		}
		if again.Image != first.Image {
			t.Errorf("an equal build gave image %s, not %s", again.Image, first.Image)
		}
		if !testing.Short() {
			wantPackages(t, b)
		}
		wantChanges(t, b, spec())
	})
}

// changesFiles reports whether an instruction changes files.
func changesFiles(text string) bool {
	word, _, _ := strings.Cut(text, " ")
	switch word {
	case "RUN", "COPY", "ADD", "WORKDIR":
		return true
	}
	return false
}

// wantPackages looks at the list of the template's packages.
func wantPackages(t *testing.T, b *bench) {
	t.Helper()
	list, err := b.TemplatePackages(t.Context(), "app")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, p := range list.Packages {
		found[p.Kind+" "+p.Name] = p.Version + " " + p.License
	}
	if found["npm wordjs"] != "3.2.1 MIT" || found["pypi wordpy"] != "1.5 " {
		t.Errorf("of %d packages, wordjs is %q and wordpy %q", len(found), found["npm wordjs"],
			found["pypi wordpy"])
	}
}

// wantChanges builds another tag with one file changed and compares the two.
func wantChanges(t *testing.T, b *bench, spec carrel.BuildSpec) {
	t.Helper()
	spec.Tags = []string{"v2"}
	spec.Dockerfile = strings.Replace(spec.Dockerfile, "USER user\nCMD",
		"RUN echo new > added && rm plain.txt\nUSER user\nCMD", 1)
	build := b.ready(spec)
	ran := 0
	for _, s := range build.Steps {
		if changesFiles(s.Text) && !s.Cached {
			ran++
		}
	}
	if ran != 1 {
		t.Errorf("%d steps ran, and one was new: %+v", ran, build.Steps)
	}
	changes, err := b.TemplateChanges(t.Context(), "app:v1", "app:v2")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]carrel.ChangeKind{}
	for _, c := range changes {
		kinds[c.Path] = c.Kind
	}
	if len(kinds) > 4 || kinds["/srv/app/added"] != carrel.ChangeAdded ||
		kinds["/srv/app/plain.txt"] != carrel.ChangeRemoved {
		t.Errorf("the changes are %v", kinds)
	}
}

// TestDockerfileFailures shows how failures name their line.
func TestDockerfileFailures(t *testing.T) {
	t.Parallel()
	oneTier(t, carrel.GVisor, func(t *testing.T, b *bench) {
		for _, c := range []struct {
			name, text string
			line       int
			want       string
		}{
			{"a command", "FROM template://small\nRUN true\n\nRUN echo words >&2; exit 7\n", 4, "7"},
			{"a missing file", "FROM template://small\nCOPY nothing /\n", 2, "nothing"},
			{"a missing secret", "FROM template://small\nRUN --mount=type=secret,id=tok,required true\n", 2,
				"tok"},
			{"a missing base", "FROM template://small\nFROM template://no-such-template\n", 2,
				"no-such-template"},
			{"a refusal", "FROM template://small\nRUN --mount=type=ssh true\n", 2, "ssh"},
			{"a missing user", "FROM template://small\nUSER nobody-of-this-name\nRUN true\n", 3,
				"nobody-of-this-name"},
		} {
			build, logs := b.build(carrel.BuildSpec{Name: "wrong", Dockerfile: c.text,
				Context: bytes.NewReader(archive(t, file{name: "a"}))})
			if build.State != carrel.BuildError || build.Reason == nil || build.Reason.Line != c.line ||
				!strings.Contains(build.Reason.Message, c.want) {
				t.Errorf("%s: %s %+v\n%s", c.name, build.State, build.Reason, text(logs))
			}
		}
	})
}
