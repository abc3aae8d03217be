package node

import "tandem/node/api"

// observe turns the API's record of a request into an event. The model's name
// becomes a label, so only names of models that exist here go through.
func (n *Node) observe(r api.RequestRecord) {
	model := r.Model
	if model == "" {
		model = "none"
	}
	n.workload.finished(r)
	n.events.emit(RequestFinished{ID: r.ID, Endpoint: r.Endpoint, Model: model, Outcome: string(r.Outcome), Status: r.Status,
		PromptTokens: r.PromptTokens, CachedTokens: r.CachedTokens, CompletionTokens: r.CompletionTokens,
		TTFT: r.TTFT.Seconds(), Seconds: r.Total.Seconds(), Load: r.Load.Seconds(), Queue: r.Queue.Seconds(), Prefill: r.Prefill.Seconds(),
		Decode: r.Decode.Seconds(), intervals: r.Intervals})
}
