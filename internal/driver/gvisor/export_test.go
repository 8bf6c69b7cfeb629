package gvisor

import "time"

// BeginBlanks has the driver start its blank sentries now, as Sweep does.
func (d *Driver) BeginBlanks() { d.blanks.begin() }

// SpawnerMayStart forgets when the last spawner was started.
func (d *Driver) SpawnerMayStart() {
	d.spawner.mu.Lock()
	defer d.spawner.mu.Unlock()
	d.spawner.next = time.Time{}
}
