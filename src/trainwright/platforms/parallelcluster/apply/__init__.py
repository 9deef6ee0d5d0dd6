"""Making a ParallelCluster real and removing it again. CloudFormation and tags hold the state: any run can be ended at
any moment, and the next one goes on from what is there."""
