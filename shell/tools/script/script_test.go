package script_test

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/shell/interp"
	"github.com/carrel-dev/carrel/shell/tools/script"
	"github.com/carrel-dev/carrel/shell/tools/script/pywasm"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// run runs a bash script on a machine with this package's programs.
func run(t *testing.T, text string, l interp.Limits) (stdout, stderr string, code int) {
	t.Helper()
	var names []string
	for name := range script.Commands() {
		names = append(names, name)
	}
	f := vfs.New(vfs.Options{Quota: 64 << 20})
	if err := interp.Install(f, names...); err != nil {
		t.Fatal(err)
	}
	if err := f.Root().MkdirAll("/w", 0o755); err != nil {
		t.Fatal(err)
	}
	m := interp.New(interp.Config{FS: f, Hostname: "box", Commands: script.Commands(), Limits: l})
	defer m.Close()
	out, errs := interp.NewPipe(), interp.NewPipe()
	p, err := m.Start(interp.Spec{Path: "bash", Args: []string{"-c", text}, Dir: "/w", Env: []string{"PATH=/usr/bin:/bin", "HOME=/root"}, Out: out, Err: errs})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for pipe, to := range map[*interp.Pipe]*string{out: &stdout, errs: &stderr} {
		wg.Go(func() {
			var b bytes.Buffer
			_, _ = b.ReadFrom(pipe) // ends with the last writer
			*to = b.String()
		})
	}
	wg.Wait()
	st := p.Wait()
	return stdout, stderr, st.Code
}

// hostile are scripts that must end soon by themselves, at a limit or with an error.
var hostile = map[string]string{
	"loop":           `node -e 'for(;;){}'`,
	"loop in catch":  `node -e 'for(;;)try{for(;;);}catch{}'`,
	"promises":       `node -e 'const f=()=>Promise.resolve().then(f);f()'`,
	"ticks":          `node -e 'const f=()=>process.nextTick(f);f()'`,
	"memory":         `node -e 'const a=[];for(;;)a.push("x".repeat(1e6)+a.length)'`,
	"buffers":        `node -e 'const a=[];for(;;)a.push(Buffer.alloc(1e7,1))'`,
	"string":         `node -e 'let s="x";for(;;)s+=s'`,
	"regexp":         `node -e '/^(a+)+$/.test("a".repeat(40)+"b")'`,
	"recursion":      `node -e 'const f=()=>f()+1;f()'`,
	"json":           `node -e 'JSON.parse("[".repeat(1e7))'`,
	"stringify":      `node -e 'let o={};for(let i=0;i<1e6;i++)o={o};JSON.stringify(o)'`,
	"inspect":        `node -e 'let o={};for(let i=0;i<1e5;i++)o={o};console.log(require("util").inspect(o,{depth:null}))'`,
	"index":          `node -e '"a".repeat(1e8).indexOf("a".repeat(5e7)+"b")'`,
	"array like":     `node -e 'Array.prototype.indexOf.call({length:2**53-1},1)'`,
	"join":           `node -e 'Array(4e9).join()'`,
	"output":         `node -e 'for(;;)console.log("x".repeat(1e5))'`,
	"require itself": `echo 'module.exports=require("./a"+(global.n=(global.n||0)+1)%2)' > a0.js; node -e 'const M=require("module");const r=M.prototype.require;let d=0;M.prototype.require=function(x){return r.call(this,x)};for(;;){try{require("./a0")}catch{}; delete require.cache[require.resolve("./a0")]}'`,
	"proxy":          `node -e 'const p=new Proxy({},{get:()=>p,has:()=>true,ownKeys:()=>{for(;;);}});console.log(p);Object.keys(p)'`,
	"getters":        `node -e 'Object.defineProperty(Object.prototype,"message",{get(){for(;;);}});throw new Error()'`,
	"prototypes":     `node -e 'Array.prototype.push=Array.prototype.shift=Array.prototype[Symbol.iterator]=function(){throw 1};Object.prototype.get=()=>{};Map.prototype.set=null;setTimeout(()=>console.log(1));process.nextTick(()=>{});console.log({a:[1]})'; node -e 'Promise.prototype.then=()=>{for(;;);};import("fs").then();(async()=>{await 1})()'`,
	"timers":         `node -e 'setInterval(()=>{},1);for(let i=0;i<1e5;i++)setTimeout(()=>{},1e6)'`,
	"zip bomb":       `node -e 'const z=require("zlib");let b=Buffer.alloc(6e7);for(let i=0;i<3;i++)b=z.gzipSync(b);for(;;)b=z.gunzipSync(b)'`,
	"pbkdf2":         `node -e 'require("crypto").pbkdf2Sync("a","b",2**40,64,"sha512")'`,
	"hashes":         `node -e 'for(;;)require("crypto").createHash("sha256").update("x")'`,
	"children":       `node -e 'const f=()=>require("child_process").execSync("node -e 1; node /w/f.js");f()'; echo 'require("child_process").execSync("node /w/f.js & node /w/f.js")' > f.js; node f.js`,
	"descriptors":    `echo > x; node -e 'for(;;)require("fs").openSync("x")'`,
	"disk":           `node -e 'for(let i=0;;i++)require("fs").writeFileSync("f"+i,"x".repeat(1e6))'`,
	"symlinks":       `node -e 'const fs=require("fs");fs.symlinkSync("b","a");fs.symlinkSync("a","b");fs.readFileSync("a")'`,
	"atomics":        `node -e 'Atomics.wait(new Int32Array(new SharedArrayBuffer(8)),0,0)'`,
	"module cycles":  `echo 'import "./y.mjs"; export const x=1; for(;;);' > x.mjs; echo 'import "./x.mjs"' > y.mjs; node x.mjs`,
	"eval tower":     `node -e 'let s="1";for(let i=0;i<1e4;i++)s="eval("+JSON.stringify(s).slice(0,1e5)+")";eval(s)'`,
	"template":       "node -e 'let a=`x`;for(let i=0;i<60;i++)a=`${a}${a}`'",
	"sort":           `node -e 'Array.from({length:3e6},(_, i)=>"k"+i).sort((a,b)=>a.localeCompare(b))'`,
	"dates":          `node -e 'for(;;)new Date("2024-01-01").toLocaleString()'`,
}

// TestHostile runs each of the hostile scripts with small limits. Each must end, and the test
// process must survive.
func TestHostile(t *testing.T) {
	steps := int64(10 << 20)
	if testing.Short() { // usually with the race detector
		steps = 1 << 20
	}
	for name, text := range hostile {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			out, errs, code := run(t, text, interp.Limits{Procs: 20, Memory: 96 << 20, Output: 8 << 20, Steps: steps, Depth: 64})
			if took := time.Since(began); took > 5*time.Minute {
				t.Errorf("took %v", took)
			}
			t.Logf("%v: %d; %d bytes; %.200s", time.Since(began), code, len(out), errs)
		})
	}
}

// TestGlobalsAreNotTheLibrarys checks that a script's changes of the globals do not affect the
// library, and that a script can't name anything of the host.
func TestGlobalsAreNotTheLibrarys(t *testing.T) {
	out, errs, _ := run(t, `node -e 'console.log(typeof host, typeof defs, typeof hooks, typeof require("internal/inspect"))' 2>&1
node -e 'console.log(Object.getOwnPropertyNames(globalThis).filter(n=>/host|std|scriptArgs|print|bjson/i.test(n)))'
node -e 'const process=1,URL=2,Buffer=3;{console.log(process,URL,Buffer,require("url").URL.name)}'
node -e 'try{process.binding("fs")}catch(e){console.log(e.code)};try{(function(){return this})().constructor.constructor("return host")()}catch(e){console.log(e.name)}'`, interp.Limits{Memory: 96 << 20})
	if !strings.Contains(out, "Cannot find module 'internal/inspect'") && !strings.Contains(out+errs, "internal/inspect") || !strings.Contains(out, "[]\n1 2 3 URL\nERR_INVALID_MODULE\nReferenceError\n") {
		t.Errorf("%s\n%s", out, errs)
	}
}

func TestTools(t *testing.T) {
	out, errs, _ := run(t, `cat_() { :; }; echo '{"allow":[{"methods":["node"],"max_calls":2,"params":{"x":{"type":"integer","le":5}}}]}' > rules.json
echo 'process.stdout.write(require("fs").readFileSync(0))' > /w/echo.js
cat > /dev/null < /dev/null || :
js-exec --tools rules.json -e '
for (const args of [{x: 6}, {x: 1, y: 2}, {}, {x: 1}]) try { console.log(tools.node(args)) } catch (e) { console.log(e.message.split("\n")[0]) }
try { tools.python({}) } catch (e) { console.log(e.message) }
try { tools.nope.deep() } catch (e) { console.log(e.message) }'
echo '{"alow":[]}' > bad.json; node --tools bad.json -e 1; echo $?; node --tools gone.json -e 1; echo $?; node -e 'console.log(typeof tools)'`, interp.Limits{Memory: 96 << 20})
	const want = "denied: node: x: it is not at most 5\ndenied: node: y: no rule names this parameter\ndenied: node: x: it is missing\n"
	if !strings.HasPrefix(out, want) || !strings.Contains(out, "denied: python: no rule allows this tool\nthere is no tool \"nope/deep\"\n9\n9\nundefined\n") {
		t.Errorf("%s\n%s", out, errs)
	}
}

func TestPython(t *testing.T) {
	testenv.Long(t, "the interpreter takes seconds to compile, and a minute with the race detector")
	var missing error
	if !pywasm.Present() {
		missing = pywasm.ErrMissing
	}
	testenv.Need(t, "pywasm", missing)
	for _, c := range []struct{ script, want string }{
		{`python3 -c 'import sys,os; print(sys.argv, os.getcwd(), sys.version_info[:2])' a -b`, "['-c', 'a', '-b'] /w (3, 12)\n"},
		{`echo 'import json; print(json.dumps({"a": [1]}), __file__)' > s.py; python3 s.py`, "{\"a\": [1]} /w/s.py\n"},
		{`python3 -c 'open("f","w").write("hi")'; python -c 'import os; print(open("f").read(), sorted(os.listdir(".")))'`, "hi ['f']\n"},
		{`python3 -c 'import time; t = time.time(); time.sleep(0.05); print(time.time() - t >= 0.05); time.sleep(0)'`, "True\n"},
		{`python3 -c 'raise SystemExit(7)'; echo $?; python3 -c '1/0' 2>/dev/null; echo $?; python3 gone.py 2>/dev/null; echo $?`, "7\n1\n2\n"},
		{`echo '{"x":1}' | python3 -m json.tool --compact`, "{\"x\":1}\n"},
		{`echo 'print(input()[::-1])' > r.py; echo abc | python3 r.py; echo 'print(3)' | python3`, "cba\n3\n"},
		{`python3 -c 'import subprocess as s; print(s.run("echo x; exit 3", shell=True, capture_output=True))'`, "CompletedProcess(args='echo x; exit 3', returncode=3, stdout=b'x\\n', stderr=b'')\n"},
		{`python3 -c 'import sqlite3,hashlib; print(sqlite3.connect(":memory:").execute("select 6*7").fetchone()[0], hashlib.md5(b"").hexdigest())'`, "42 d41d8cd98f00b204e9800998ecf8427e\n"},
		{`python3 -c 'x=[0]*10**9' 2>&1 | while read -r l; do last=$l; done; echo $?; python3 -c 'while True: pass' & p=$!; read -t 1 < /dev/zero; kill $p; wait $p; echo $?`, "0\n143\n"},
		{`python3 -c 'import os
for p in ("/.carrel/run","/../../etc/hostname","/proc/self/environ","/etc/shadow"):
  try: print(p, len(open(p).read()) < 100)
  except OSError as e: print(p, "no")'`, ""},
	} {
		out, errs, _ := run(t, c.script, interp.Limits{Memory: 256 << 20, Steps: 2 << 30, Procs: 20})
		if c.want != "" && out != c.want {
			t.Errorf("%s\ngot  %q\nwant %q\n%s", c.script, out, c.want, errs)
		}
		t.Logf("%s%s", out, errs)
	}
}
