"""FedAsync, with FedBuff, FedAvg and single-thread SGD.

Paper: Xie, Koyejo, Gupta, "Asynchronous Federated Optimization" (arXiv:1903.03934), Algorithm 1
and section 5.2. FedAvg: McMahan et al., arXiv:1602.05629. FedBuff: Nguyen et al., arXiv:2106.06639.

| here          | paper      | meaning |
|---------------|------------|---------|
| params        | x_t        | global model after t epochs, float32 (d,) |
| version       | t          | epochs: updates mixed in; buffers (FedBuff); rounds (FedAvg) |
| base_version  | τ          | time stamp of the model that a worker began with |
| staleness     | t - τ      | measured at the server |
| mixing        | α          | mixing hyperparameter; α_t = α·s(t - τ), new for each update |
| steps         | H          | local iterations, in [H_min, H_max] |
| proximal      | ρ          | weight of ρ/2·||x - x_τ||² |
| learning_rate | γ          | step size of a local iteration |
| concurrency   | -          | how many workers the scheduler keeps at work; bounds the staleness |

The paper has no privacy. Here every local iteration is a DP-SGD step, charged before the task
begins; x_new is post-processing. The weight s is public and multiplies signal and noise alike, so
it needs no sensitivity of its own.
"""
