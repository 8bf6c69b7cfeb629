package agent

// processes are the processes that the agent started and that still run.
type processes struct{}

func (p *processes) init() {}

func (p *processes) killAll() {}
