"""Making a cluster on AWS and removing it again, whatever the platform. CloudFormation and tags hold the state: any run
can be ended at any moment, and the next one goes on from what is there."""
