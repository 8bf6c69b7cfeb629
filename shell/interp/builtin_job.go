package interp

import (
	"errors"
	"slices"
	"sort"
	"strconv"
	"strings"
	"syscall"
)

// biWait waits for children.
func biWait(c *call) int {
	r := c.r
	args := c.args
	var next, full bool
	name := ""
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		a := args[0]
		args = args[1:]
		if a == "--" {
			break
		}
		for i := 1; i < len(a); i++ {
			switch a[i] {
			case 'n':
				next = true
			case 'f':
				full = true
			case 'p':
				if name = a[i+1:]; name == "" {
					if len(args) == 0 {
						return c.fail(2, "-p: option requires an argument")
					}
					name, args = args[0], args[1:]
				}
				i = len(a)
			default:
				c.fail(2, "-%c: invalid option", a[i])
				r.writeErr("wait: usage: wait [-fn] [-p var] [id ...]\n")
				return 2
			}
		}
	}
	if name != "" {
		if !isName(strings.SplitN(name, "[", 2)[0]) {
			return c.fail(1, "`%s': not a valid identifier", name)
		}
		r.unset(name)
	}
	report := func(pid int) {
		if name != "" {
			r.set(name, strconv.Itoa(pid))
		}
	}
	if next {
		return r.waitNext(c, args, report)
	}
	if len(args) == 0 {
		return r.waitAll(full)
	}
	return c.waitEach(args, full, report)
}

// waitAll waits for all jobs, and for the last process substitution.
func (r *runner) waitAll(full bool) int {
	for _, j := range r.ownJobs() {
		if !r.waitJob(j, full) {
			return r.status
		}
	}
	for _, p := range r.ended { // process substitutions
		if !p.ended() && p.parent == r.p && p.pid == r.lastBg && !r.waitUntil(p.ended) {
			return r.status
		}
	}
	r.reapCoproc()
	return 0
}

// waitEach waits for the named jobs and processes in turn, and returns the status of the last.
func (c *call) waitEach(args []string, full bool, report func(pid int)) int {
	r := c.r
	status := 0
	for _, a := range args {
		if strings.HasPrefix(a, "%") {
			j, err := r.findJob(a)
			if err != nil {
				status = c.fail(127, "%s: %v", a, err)
				continue
			}
			report(j.p.pid)
			if !r.waitJob(j, full) {
				return r.status
			}
			status = j.p.code
			continue
		}
		pid, err := strconv.Atoi(a)
		if err != nil || pid < 0 {
			status = c.fail(1, "`%s': not a pid or valid job spec", a)
			continue
		}
		if j, err := r.jobOf(a); err == nil && j.p.parent == r.p {
			report(pid)
			if !r.waitJob(j, full) {
				return r.status
			}
			status = j.p.code
		} else if p := r.ended[pid]; p != nil {
			report(pid)
			if !r.waitUntil(p.ended) {
				return r.status
			}
			status = p.code
		} else if r.coproc != nil && r.coproc.p.pid == pid {
			if !r.waitUntil(r.coproc.p.ended) {
				return r.status
			}
			status = r.coproc.p.code
		} else {
			status = c.fail(127, "pid %s is not a child of this shell", a)
		}
		r.reapCoproc()
	}
	return status
}

// waitJob waits for a job and forgets it.
func (r *runner) waitJob(j *job, full bool) bool {
	ok := r.waitUntil(func() bool {
		return j.p.ended() || !full && r.opts.monitor && j.p.stopped() != 0
	})
	if !ok {
		return false
	}
	if !j.p.ended() {
		r.status = 128 + j.p.stopped()
		return false
	}
	r.dropJob(j)
	return true
}

// waitNext waits for the next of some jobs, or of all.
func (r *runner) waitNext(c *call, ids []string, report func(int)) int {
	among, bad := r.ownJobs(), false
	var over *proc // a job that was waited for before
	if len(ids) > 0 {
		among = nil
		for _, id := range ids {
			j, err := r.jobOf(id)
			if err != nil {
				if pid, perr := strconv.Atoi(id); perr == nil && r.ended[pid] != nil {
					over = r.ended[pid]
					continue
				}
				c.fail(127, "%s: no such job", id)
				bad = true
				continue
			}
			among = append(among, j)
		}
	}
	switch {
	case !bad && over != nil && len(among) == 0:
		report(over.pid)
		return over.code
	case len(among) == 0:
		return 127
	}
	var hit *job
	ok := r.waitUntil(func() bool {
		for _, j := range among {
			if j.p.ended() {
				hit = j
				return true
			}
		}
		return false
	})
	if !ok {
		return r.status
	}
	report(hit.p.pid)
	r.dropJob(hit)
	return hit.p.code
}

func biKill(c *call) int {
	args, sig := c.args, sigTERM
	const usage = "kill: usage: kill [-s sigspec | -n signum | -sigspec] pid | jobspec ... or kill -l [sigspec]\n"
	if len(args) == 0 {
		c.r.writeErr(usage)
		return 2
	}
	switch a := args[0]; {
	case a == "-l" || a == "-L":
		return killList(c, args[1:])
	case a == "-s" || a == "-n":
		if len(args) < 2 {
			return c.fail(1, "%s: option requires an argument", a)
		}
		n, ok := parseSignal(args[1])
		if !ok {
			return c.fail(1, "%s: invalid signal specification", args[1])
		}
		sig, args = n, args[2:]
	case a == "--":
		args = args[1:]
	case len(a) > 1 && a[0] == '-':
		text := a[1:]
		if len(a) > 2 && (a[1] == 's' || a[1] == 'n') {
			text = a[2:]
		}
		n, ok := parseSignal(text)
		if !ok {
			return c.fail(1, "%s: invalid signal specification", text)
		}
		sig, args = n, args[1:]
	}
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		c.r.writeErr(usage)
		return 2
	}
	status, sent := 0, false
	for _, a := range args {
		if c.r.killOne(c, a, sig) {
			sent = true
		} else {
			status = 1
		}
	}
	if sent && status != 0 && len(args) > 1 {
		return 0
	}
	return status
}

// killOne signals one pid or job.
func (r *runner) killOne(c *call, a string, sig int) bool {
	pid, err := strconv.Atoi(a)
	var target *job
	if strings.HasPrefix(a, "%") {
		j, ferr := r.findJob(a)
		if ferr != nil {
			c.fail(1, "%s: %v", a, ferr)
			return false
		}
		target, err = j, nil
		if pid = j.p.pid; j.group {
			pid = -j.p.pgid
		}
	}
	if err != nil {
		c.fail(1, "%s: arguments must be process or job IDs", a)
		return false
	}
	switch pid {
	case 0:
		pid = -r.p.pgid
	case -1:
		pid = 0
	}
	err = r.m.signal(pid, sig, r.cred().UID)
	if err == nil && target != nil && target.p.stopped() != 0 && (sig == sigTERM || sig == sigHUP) {
		err = r.m.signal(pid, sigCONT, r.cred().UID)
	}
	if err != nil {
		text := "No such process"
		if errors.Is(err, syscall.EPERM) {
			text = "Operation not permitted"
		}
		c.fail(1, "(%s) - %s", a, text)
		return false
	}
	return true
}

func killList(c *call, args []string) int {
	if len(args) == 0 {
		return listSignals(c)
	}
	status := 0
	for _, a := range args {
		n, err := strconv.Atoi(a)
		if err != nil {
			if sig, ok := parseSignal(a); ok {
				c.print(strconv.Itoa(sig) + "\n")
				continue
			}
			status = c.fail(1, "%s: invalid signal specification", a)
			continue
		}
		if n > 128 {
			n -= 128
		}
		name := signalNames[n]
		if n == 0 {
			name = "EXIT"
		}
		if name == "" {
			status = c.fail(1, "%s: invalid signal specification", a)
			continue
		}
		c.print(name + "\n")
	}
	return status
}

// listSignals prints the table of kill -l and trap -l.
func listSignals(c *call) int {
	nums := make([]int, 0, len(signalNames))
	for n := range signalNames {
		nums = append(nums, n)
	}
	sort.Ints(nums)
	var b strings.Builder
	for i, n := range nums {
		if n < 10 {
			b.WriteByte(' ')
		}
		b.WriteString(strconv.Itoa(n) + ") SIG" + signalNames[n])
		const columns = 5
		if i%columns == columns-1 {
			b.WriteByte('\n')
		} else {
			b.WriteByte('\t')
		}
	}
	b.WriteByte('\n')
	return c.print(b.String())
}

// biJobs lists jobs.
func biJobs(c *call) int {
	r := c.r
	args := c.args
	var long, changed, pids, running, stopped bool
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		a := args[0]
		args = args[1:]
		if a == "--" {
			break
		}
		for _, l := range a[1:] {
			switch l {
			case 'l':
				long = true
			case 'n':
				changed = true
			case 'p':
				pids = true
			case 'r':
				running = true
			case 's':
				stopped = true
			case 'x':
				return r.jobsRun(c, args)
			default:
				c.fail(2, "-%c: invalid option", l)
				r.writeErr("jobs: usage: jobs [-lnprs] [jobspec ...] or jobs -x command [args]\n")
				return 2
			}
		}
	}
	r.tidyJobs()
	list, status := slices.Clone(r.jobs), 0
	if len(args) > 0 {
		list = nil
		for _, a := range args {
			j, err := r.jobOf(a)
			if err != nil {
				status = c.fail(1, "%s: %v", a, err)
				continue
			}
			list = append(list, j)
		}
	}
	var b strings.Builder
	var over []*job
	for _, j := range list {
		ended, halted := j.p.ended(), j.p.stopped() != 0
		if running && (ended || halted) || stopped && (ended || !halted) || changed && j.told && !ended {
			continue
		}
		if pids {
			b.WriteString(strconv.Itoa(j.p.pid) + "\n")
			continue
		}
		b.WriteString(r.jobLine(j, long))
		j.told = true
		if ended {
			over = append(over, j)
		}
	}
	for _, j := range over {
		r.dropJob(j)
	}
	c.print(b.String())
	return status
}

// jobsRun runs a command whose job names are replaced with pids.
func (r *runner) jobsRun(c *call, args []string) int {
	args = slices.Clone(args)
	for i, a := range args {
		if strings.HasPrefix(a, "%") {
			if j, err := r.findJob(a); err == nil {
				args[i] = strconv.Itoa(j.p.pid)
			}
		}
	}
	if len(args) == 0 {
		return 0
	}
	r.run(args)
	return r.status
}

// biDisown removes jobs from the list, or marks them.
func biDisown(c *call) int {
	r := c.r
	args := c.args
	var all, mark, running bool
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		a := args[0]
		args = args[1:]
		for _, l := range a[1:] {
			switch l {
			case 'a':
				all = true
			case 'h':
				mark = true
			case 'r':
				running = true
			case '-':
			default:
				c.fail(2, "-%c: invalid option", l)
				r.writeErr("disown: usage: disown [-h] [-ar] [jobspec ... | pid ...]\n")
				return 2
			}
		}
	}
	list, status := []*job(nil), 0
	switch {
	case len(args) > 0:
		for _, a := range args {
			j, err := r.jobOf(a)
			if err != nil {
				status = c.fail(1, "%s: %v", a, err)
				continue
			}
			list = append(list, j)
		}
	case all || running:
		list = slices.Clone(r.jobs)
	default:
		cur, _ := r.marks()
		if cur == nil {
			return c.fail(1, "current: %v", errNoJob)
		}
		list = []*job{cur}
	}
	for _, j := range list {
		switch {
		case running && (j.p.ended() || j.p.stopped() != 0):
		case mark:
			j.nohup = true
		default:
			r.dropJob(j)
			delete(r.ended, j.p.pid)
		}
	}
	return status
}

// biForeground and biBackground are fg and bg.
func biForeground(c *call) int {
	r := c.r
	if !r.opts.monitor {
		return c.fail(1, "no job control")
	}
	r.tidyJobs()
	j, code := r.pickJob(c, c.args)
	if j == nil {
		return code
	}
	c.print(j.text + "\n")
	if j.p.ended() {
		r.dropJob(j)
		return j.p.code
	}
	if tty := r.p.tree.tty; tty != nil && j.group {
		tty.setGroup(j.p.pgid)
	}
	r.signalJob(j, sigCONT)
	if r.ctx.Err() != nil { // ^C came before the job was in the foreground
		r.signalJob(j, sigINT)
	}
	j.shown, j.told = 0, false
	r.watch(j)
	return r.status
}

func (r *runner) signalJob(j *job, sig int) {
	pid := j.p.pid
	if j.group {
		pid = -j.p.pgid
	}
	_ = r.m.signal(pid, sig, 0) // it may have ended meanwhile
}

func (r *runner) pickJob(c *call, args []string) (*job, int) {
	spec, name := "%+", "current"
	if len(args) > 0 && args[0] != "--" {
		spec, name = args[0], args[0]
		if !strings.HasPrefix(spec, "%") {
			spec = "%" + spec
		}
	}
	j, err := r.findJob(spec)
	if err != nil {
		return nil, c.fail(1, "%s: %v", name, err)
	}
	return j, 0
}

func biBackground(c *call) int {
	r := c.r
	if !r.opts.monitor {
		return c.fail(1, "no job control")
	}
	args := c.args
	if len(args) == 0 {
		args = []string{"%+"}
	}
	status := 0
	for _, a := range args {
		j, code := r.pickJob(c, []string{a})
		if j == nil {
			status = code
			continue
		}
		if j.p.ended() {
			status = c.fail(1, "job has terminated")
			continue
		}
		if j.p.stopped() == 0 {
			c.fail(0, "job %d already in background", j.id)
			continue
		}
		mark := " "
		if cur, prev := r.marks(); j == cur {
			mark = "+"
		} else if j == prev {
			mark = "-"
		}
		c.print("[" + strconv.Itoa(j.id) + "]" + mark + " " + j.text + " &\n")
		j.shown = 0
		r.signalJob(j, sigCONT)
	}
	return status
}

// biSuspend stops the shell itself.
func biSuspend(c *call) int {
	force := len(c.args) > 0 && c.args[0] == "-f"
	if !c.r.opts.monitor && !force {
		return c.fail(1, "cannot suspend: no job control")
	}
	c.r.p.deliver(sigSTOP)
	c.r.step()
	return 0
}

// ownJobs lists the jobs that this shell can wait for. A subshell can only name the jobs of its
// parent.
func (r *runner) ownJobs() []*job {
	var out []*job
	for _, j := range r.jobs {
		if j.p.parent == r.p {
			out = append(out, j)
		}
	}
	return out
}

// tidyJobs forgets jobs that have ended, as a shell with -c does. Such a shell shows ended jobs
// only with job control.
func (r *runner) tidyJobs() {
	if !r.fromArg || r.interactive {
		return
	}
	for _, j := range slices.Clone(r.jobs) {
		if j.p.ended() {
			if r.opts.monitor {
				r.writeErr(r.jobLine(j, false))
			}
			r.dropJob(j)
		}
	}
}
