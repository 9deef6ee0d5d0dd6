"""CloudFormation templates, shipped as they are: a person can deploy one by hand."""
