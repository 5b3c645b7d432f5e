"""Several instances at one domain, among whose connections ejabberd balances the stanzas."""
